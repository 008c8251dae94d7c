package ca

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"

	"muster/internal/wire"
)

// Bounds of a request's extensions.
const (
	maxExtensions     = 16
	maxExtensionBytes = 255
)

// oidPuppet is 1.3.6.1.4.1.34380.1.1, below which are [PuppetExtensions].
var oidPuppet = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 34380, 1, 1}

const tagUTF8String = 0x0c

// extensions returns Puppet's extensions in the order of their identifiers.
func (r *Request) extensions() ([]pkix.Extension, error) {
	var errs []error
	if len(r.Extensions) > 0 && r.Role != wire.RoleNode {
		errs = append(errs, fmt.Errorf("a certificate of role %s has no extensions of Puppet", r.Role))
	}
	if n := len(r.Extensions); n > maxExtensions {
		return nil, fmt.Errorf("%d extensions, limit %d", n, maxExtensions)
	}
	var all []pkix.Extension
	for name, value := range r.Extensions {
		arc, ok := PuppetExtensions[name]
		if !ok || name == "pp_preshared_key" { // a secret
			errs = append(errs, fmt.Errorf("extension %.40q, want one of Puppet's, like pp_role", name))
		}
		if value == "" || len(value) > maxExtensionBytes || !printable(value) {
			errs = append(errs, fmt.Errorf("extension %.40s: value %.80q, want 1 to %d bytes of printable UTF-8", name,
				value, maxExtensionBytes))
		}
		all = append(all, pkix.Extension{
			Id:    append(slices.Clip(oidPuppet), arc),
			Value: der(tagUTF8String, []byte(value)),
		})
	}
	slices.SortFunc(all, func(a, b pkix.Extension) int { return slices.Compare(a.Id, b.Id) })
	return all, errors.Join(errs...)
}
