"""What SlopCodeBench's users import."""

from .assets import ResolvedStaticAsset
from .docker_runtime import DockerEnvironmentSpec
from .session import Session

__all__ = ["DockerEnvironmentSpec", "ResolvedStaticAsset", "Session"]
