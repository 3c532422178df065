"""Sandboxes for Harbor: `harbor run --env fumehood.harbor:FumehoodEnvironment`."""

from .._framework import expect, importing

with importing("harbor", "harbor", python=(3, 12)):
    from harbor.environments.base import BaseEnvironment

    for name, parameters in {
        "start": "force_build",
        "stop": "delete",
        "exec": "command cwd env timeout_sec user",
        "service_exec": "command service cwd env timeout_sec user",
        "upload_file": "source_path target_path",
        "upload_dir": "source_dir target_dir",
        "service_download_file": "source_path target_path service",
        "service_download_dir": "source_dir target_dir service",
        "validate_network_policy_support": "network_policy",
    }.items():
        expect(getattr(BaseEnvironment, name), ["self", *parameters.split()])
    from ._environment import FumehoodEnvironment as FumehoodEnvironment
    from ._project import FumehoodOptions as FumehoodOptions
