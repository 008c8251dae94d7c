# Versions of the tools that make what is in dist/.
CYCLONEDX_GOMOD_VERSION = v1.10.0
GOVULNCHECK_VERSION = v1.9.0
NFPM_VERSION = v2.45.2
