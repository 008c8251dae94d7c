# Versions of the tools that make what is in dist/.
CYCLONEDX_GOMOD_VERSION = v1.10.0
GOVULNCHECK_VERSION = v1.9.0
NFPM_VERSION = v2.45.2
# Kubernetes and Helm, on which the chart is tested.
CONTAINERD_VERSION = v2.4.2
ETCD_VERSION = v3.7.3
HELM_VERSION = v4.3.2
HELM3_VERSION = v3.22.0
KUBERNETES_VERSION = v1.37.2
