package wire

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A Role is the first path element of a certificate's SPIFFE ID.
type Role string

// A certificate has exactly one role.
const (
	RoleNode        Role = "node"
	RoleBroker      Role = "broker"
	RoleProvisioner Role = "provisioner"
	RoleOperator    Role = "operator"

	// RoleService is for service certificates, whose name is `<identity>/<name>`. They open nothing of muster's, so
	// [RoleOf] refuses them.
	RoleService Role = "service"
)

// ErrRole means a certificate without a role of this installation.
var ErrRole = errors.New("certificate names no role of this installation")

// RoleURI returns the SPIFFE ID spiffe://<trust domain>/<role>/<name>.
func RoleURI(trustDomain string, role Role, name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + string(role) + "/" + name}
}

// RoleOf returns role and name from cert's only URI. It does not verify cert. The error wraps [ErrRole].
func RoleOf(cert *x509.Certificate, trustDomain string) (Role, string, error) {
	if len(cert.URIs) != 1 {
		return "", "", fmt.Errorf("%w: %d URIs, want 1", ErrRole, len(cert.URIs))
	}
	u := cert.URIs[0]
	if u.Scheme != "spiffe" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return "", "", fmt.Errorf("%w: URI %q, want one below spiffe://%s", ErrRole, u, trustDomain)
	}
	if u.Host != trustDomain {
		return "", "", fmt.Errorf("%w: trust domain %q, want %q", ErrRole, u.Host, trustDomain)
	}
	role, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%w: URI %q, want spiffe://%s/<role>/<name>", ErrRole, u, trustDomain)
	}
	switch r := Role(role); r {
	case RoleNode, RoleBroker, RoleProvisioner, RoleOperator:
		return r, name, nil
	default:
		return "", "", fmt.Errorf("%w: role %q", ErrRole, role)
	}
}
