#!/usr/bin/env bash
# Builds the Kubernetes on which the chart is tested: kubernetes.sh DIR. That takes about 12 minutes on two cores, once:
# programs of the pinned versions are kept.
set -euo pipefail
eval "$(sed -n 's/ = /=/p' "$(dirname "$0")/../versions.mk")"
dir=$(realpath -m "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$dir"
cd "$work"
export CGO_ENABLED=0
minor=${KUBERNETES_VERSION#v1.}

# Kubernetes replaces its libraries by directories of its own, which go install refuses. So a module of ours requires
# the program's, and replaces them by the published ones, whose versions begin with 0.
build() { # NAME PACKAGE MODULE VERSION
    go version -m "$dir/$1" 2>/dev/null | grep -q "	$3	$4	" && return
    go mod download -json "$3@$4" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p' >path
    printf 'module tools\ngo 1.26.0\ngodebug default=go1.26\nrequire %s %s\n' "$3" "$4" >go.mod
    awk -v version="v0.$minor" '$3 ~ /^\.\/staging/ { print "replace", $1, "=>", $1, version }' "$(<path)" >>go.mod
    go build -mod=mod -trimpath -tags no_btrfs,no_zfs,no_devmapper -o "$dir/$1" \
        -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$KUBERNETES_VERSION
        -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=${minor%.*}" "$2"
}

for name in kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet; do
    build "$name" "k8s.io/kubernetes/cmd/$name" k8s.io/kubernetes "$KUBERNETES_VERSION"
done
build etcd go.etcd.io/etcd/server/v3 go.etcd.io/etcd/server/v3 "$ETCD_VERSION"
for name in containerd containerd-shim-runc-v2 ctr; do
    build "$name" "github.com/containerd/containerd/v2/cmd/$name" github.com/containerd/containerd/v2 \
        "$CONTAINERD_VERSION"
done
build helm helm.sh/helm/v4/cmd/helm helm.sh/helm/v4 "$HELM_VERSION"
build helm3 helm.sh/helm/v3/cmd/helm helm.sh/helm/v3 "$HELM3_VERSION"

# The image that holds the namespaces of a pod.
[ -e "$dir/pause.tar" ] && exit
cat >pause.go <<'END'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	<-ended
}
END
go build -o pause pause.go
tar -cf layer.tar pause
printf '{"os": "linux", "architecture": "%s", "config": {"Entrypoint": ["/pause"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
    "$(go env GOARCH)" "$(sha256sum layer.tar | cut -c 1-64)" >config.json
echo '[{"Config": "config.json", "RepoTags": ["pause:test"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf "$dir/pause.tar" manifest.json config.json layer.tar
