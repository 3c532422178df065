# The default image for an agent: it is the user agent, without rights, and /workspace is its own.
ARG BASE
FROM ${BASE}
USER root
RUN grep -q '^agent:' /etc/group || echo 'agent:x:10000:' >>/etc/group; \
    grep -q '^agent:' /etc/passwd || echo 'agent:x:10000:10000::/workspace:/bin/sh' >>/etc/passwd; \
    mkdir -p /workspace && chown agent:agent /workspace
WORKDIR /workspace
USER agent
