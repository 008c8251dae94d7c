package wire

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/span"
)

// MaxCertificates is the number of service certificates that a node may have.
const MaxCertificates = 64

// maxServiceNames equals package ca's limit for names in a certificate request.
const maxServiceNames = 16

// A Specification is a service certificate that a node is to have.
type Specification struct {
	Profile string           `json:"profile,omitempty" yaml:"profile"` // for the policy
	Network string           `json:"network,omitempty" yaml:"network"` // for the policy
	Key     SpecificationKey `json:"key,omitzero" yaml:"key"`

	// DNSNames may be templates, see [ExpandName].
	DNSNames    []string `json:"dns_names,omitempty" yaml:"dns_names"`
	IPAddresses []string `json:"ip_addresses,omitempty" yaml:"ip_addresses"`
	URIs        []string `json:"uris,omitempty" yaml:"uris"`

	Usages []string `json:"usages,omitempty" yaml:"usages"` // of [CertificateUsages]; empty: server

	// Files are written. The keys are key, certificate, chain, ca and combined.
	Files map[string]SpecificationFile `json:"files" yaml:"files"`

	Renew   string `json:"renew,omitempty" yaml:"renew"`     // see [RenewAt]
	Action  string `json:"action,omitempty" yaml:"action"`   // of the node, run after files were saved
	Removed string `json:"removed,omitempty" yaml:"removed"` // "keep" (also ""), "revoke" when the file goes
}

// A SpecificationKey says how keys are made.
type SpecificationKey struct {
	Type string `json:"type,omitempty" yaml:"type"` // one of [SpecificationKeys]; "": P-256
	Keep bool   `json:"keep,omitempty" yaml:"keep"` // the same key at renewals
}

// SpecificationKeys are the types of keys.
var SpecificationKeys = []string{"P-256", "P-384", "RSA-2048", "RSA-4096"}

// A SpecificationFile is a file that the node writes.
type SpecificationFile struct {
	Path  string `json:"path" yaml:"path"`             // absolute
	Owner string `json:"owner,omitempty" yaml:"owner"` // "": the agent's
	Group string `json:"group,omitempty" yaml:"group"` // "": the agent's
	Mode  string `json:"mode,omitempty" yaml:"mode"`   // octal, such as "0640"; "": 0600 with a key, else 0644

	// Order is for the combined file: some of certificate, chain, key and ca. Empty: the first three.
	Order []string `json:"order,omitempty" yaml:"order"`
}

var parts = []string{"certificate", "chain", "key", "ca"}

const wantCertificateName = "want 1 to 64 of a-z, A-Z, 0-9, _, . and -, not beginning with a dot or a dash"

// ErrSpecification means a specification of a service certificate that no node can follow.
var ErrSpecification = errors.New("not a valid specification")

// Check returns an error that lists every mistake. It wraps [ErrSpecification].
func (s *Specification) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	oneOf := func(what, value string, choice ...string) {
		if value != "" && !slices.Contains(choice, value) {
			bad("%s %.80q, want one of %q", what, value, choice)
		}
	}
	for what, name := range map[string]string{"profile": s.Profile, "network": s.Network, "action": s.Action} {
		if name != "" && !ValidCertificateName(name) {
			bad("%s %.80q: %s", what, name, wantCertificateName)
		}
	}
	oneOf("key type", s.Key.Type, SpecificationKeys...)
	oneOf("removed", s.Removed, "keep", "revoke")
	errs = append(errs, checkUsages(s.Usages))
	s.checkNames(bad)
	s.checkFiles(bad)
	if _, err := RenewAt(s.Renew, time.Time{}, time.Time{}); err != nil {
		bad("renew %w", err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrSpecification, err)
	}
	return nil
}

func (s *Specification) checkNames(bad func(format string, args ...any)) {
	if n := len(s.DNSNames) + len(s.IPAddresses) + len(s.URIs); n == 0 || n > maxServiceNames {
		bad("%d names, want 1 to %d: dns_names, ip_addresses, uris", n, maxServiceNames)
	}
	for _, name := range s.DNSNames {
		if _, err := ExpandName(name, func(string) (string, error) { return "x", nil }); err != nil {
			bad("%w", err)
		}
	}
	for _, address := range s.IPAddresses {
		if _, err := ParseNodeAddress(address); err != nil {
			bad("%w", err)
		}
	}
	for _, text := range s.URIs {
		if !ValidServiceURI(text) {
			bad("URI %.80q, want one such as https://web.example.net/, at most 255 bytes", text)
		}
	}
}

// ValidServiceURI reports whether a certificate can have the URI as a name.
func ValidServiceURI(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= 255 && u.Scheme != "" && u.Host != "" && u.User == nil && u.Fragment == "" &&
		u.String() == text
}

var template = regexp.MustCompile(`{{\s*\.(identity|facts\.[^{}]*?)\s*}}`)

// ExpandName returns a DNS name with each `{{.identity}}` and `{{.facts.a.b}}` replaced by what value returns for
// `identity` and `facts.a.b`.
func ExpandName(name string, value func(path string) (string, error)) (Identity, error) {
	var failed error
	expanded := template.ReplaceAllStringFunc(name, func(match string) string {
		text, err := value(template.FindStringSubmatch(match)[1])
		failed = cmp.Or(failed, err)
		return text
	})
	if strings.Contains(expanded, "{{") {
		failed = cmp.Or(failed, errors.New("want {{.identity}} or {{.facts.NAME}} between braces"))
	}
	id, err := ParseName(expanded)
	if err = cmp.Or(failed, err); err != nil {
		return "", fmt.Errorf("DNS name %.300q: %w", name, err)
	}
	return id, nil
}

// RenewAt returns when a certificate is to be renewed: after a fraction of its life such as "66%", or a span such as
// "10d" before its end, but not in the first half of its life. "" is two thirds.
func RenewAt(renew string, notBefore, notAfter time.Time) (time.Time, error) {
	life := notAfter.Sub(notBefore)
	after := life / 3 * 2
	if percent, is := strings.CutSuffix(renew, "%"); is {
		n, err := strconv.Atoi(percent)
		if err != nil || n < 1 || n > 99 {
			return time.Time{}, fmt.Errorf("%.80q, want 1%% to 99%%", renew)
		}
		after = life / 100 * time.Duration(n)
	} else if renew != "" {
		before, err := span.Parse(renew)
		if err != nil {
			return time.Time{}, err
		}
		after = life - before
	}
	return notBefore.Add(max(after, life/2)), nil
}

// Parts returns what a file has, in its order: some of certificate, chain, key and ca.
func (s *Specification) Parts(file string) []string {
	switch order := s.Files[file].Order; {
	case file != "combined":
		return []string{file}
	case len(order) > 0:
		return order
	}
	return parts[:3]
}

func (s *Specification) checkFiles(bad func(format string, args ...any)) {
	paths, written := make(map[string]string), make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		file, has := s.Files[name], s.Parts(name)
		if name != "combined" && !slices.Contains(parts, name) {
			bad("files: %.80q, want combined or one of %q", name, parts)
		}
		if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path || file.Path == "/" ||
			len(file.Path) > 512 || CheckLine(file.Path) != nil {
			bad("files: %s: path %.200q, want an absolute one without . and .., of at most 512 bytes", name, file.Path)
		}
		if other, taken := paths[file.Path]; taken {
			bad("files: %s and %s have one path", other, name)
		}
		paths[file.Path] = name
		for what, account := range map[string]string{"owner": file.Owner, "group": file.Group} {
			if account != "" && (!ValidCertificateName(account) || len(account) > 32) {
				bad("files: %s: %s %.80q is no name of an account", name, what, account)
			}
		}
		if mode, err := file.Perm(0o600); err != nil {
			bad("files: %s: %w", name, err)
		} else if mode&2 != 0 || mode&7 != 0 && slices.Contains(has, "key") {
			bad("files: %s: mode %s lets other users write it, or read a key", name, file.Mode)
		}
		if len(file.Order) > 0 && name != "combined" {
			bad("files: %s: order %.80q, which only the combined file has", name, file.Order)
		}
		for i, part := range has {
			written[part] = true
			if name == "combined" && (!slices.Contains(parts, part) || slices.Contains(has[:i], part)) {
				bad("files: %s: order %.80q, want each of %q at most once", name, part, parts)
			}
		}
	}
	for _, part := range []string{"key", "certificate"} {
		if !written[part] {
			bad("files: no file for the %s", part)
		}
	}
}

// Perm returns the file's mode, or preset if it has none.
func (f SpecificationFile) Perm(preset uint32) (uint32, error) {
	if f.Mode == "" {
		return preset, nil
	}
	mode, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil || len(f.Mode) > 4 || mode > 0o777 {
		return 0, fmt.Errorf("mode %.20q, want octal digits such as \"0640\", at most 0777", f.Mode)
	}
	return uint32(mode), nil
}
