package wire

import (
	"errors"
	"fmt"
	"net/url"
	"path"
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

	Usages []string           `json:"usages,omitempty" yaml:"usages"` // of [CertificateUsages]; empty: server
	Files  SpecificationFiles `json:"files" yaml:"files"`

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

// SpecificationFiles are written, but nil ones.
type SpecificationFiles struct {
	Key         *SpecificationFile `json:"key,omitempty" yaml:"key"`
	Certificate *SpecificationFile `json:"certificate,omitempty" yaml:"certificate"`
	Chain       *SpecificationFile `json:"chain,omitempty" yaml:"chain"`
	CA          *SpecificationFile `json:"ca,omitempty" yaml:"ca"`
	Combined    *SpecificationFile `json:"combined,omitempty" yaml:"combined"`
}

// A SpecificationFile is a file that the node writes.
type SpecificationFile struct {
	Path  string `json:"path" yaml:"path"`             // absolute
	Owner string `json:"owner,omitempty" yaml:"owner"` // "": the agent's
	Group string `json:"group,omitempty" yaml:"group"` // "": the agent's
	Mode  string `json:"mode,omitempty" yaml:"mode"`   // octal, such as "0640"; "": 0600 with a key, else 0644

	// Order is for the combined file: some of certificate, chain, key and ca. Empty: [DefaultOrder].
	Order []string `json:"order,omitempty" yaml:"order"`
}

// DefaultOrder is the order of a combined file.
var DefaultOrder = []string{"certificate", "chain", "key"}

var combinedParts = append(slices.Clip(DefaultOrder), "ca")

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
	errs = append(errs, checkUsages(s.Usages), s.checkNames(), s.Files.check())
	if _, err := RenewAt(s.Renew, time.Time{}, time.Time{}); err != nil {
		bad("renew %w", err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrSpecification, err)
	}
	return nil
}

func (s *Specification) checkNames() error {
	var errs []error
	if n := len(s.DNSNames) + len(s.IPAddresses) + len(s.URIs); n == 0 || n > maxServiceNames {
		errs = append(errs, fmt.Errorf("%d names, want 1 to %d: dns_names, ip_addresses, uris", n, maxServiceNames))
	}
	for _, name := range s.DNSNames {
		_, err := ExpandName(name, func(string) (string, error) { return "x", nil })
		errs = append(errs, err)
	}
	for _, address := range s.IPAddresses {
		_, err := ParseNodeAddress(address)
		errs = append(errs, err)
	}
	for _, text := range s.URIs {
		if !ValidServiceURI(text) {
			errs = append(errs, fmt.Errorf("URI %.80q, want one such as https://web.example.net/, at most 255 bytes",
				text))
		}
	}
	return errors.Join(errs...)
}

// ValidServiceURI reports whether a certificate can have the URI as a name.
func ValidServiceURI(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= 255 && u.Scheme != "" && u.Host != "" && u.User == nil && u.Fragment == "" &&
		u.String() == text
}

// ExpandName returns a DNS name with each `{{.identity}}` and `{{.facts.a.b}}` replaced by what value returns for
// `identity` and `facts.a.b`.
func ExpandName(template string, value func(path string) (string, error)) (Identity, error) {
	name, rest := "", template
	for {
		before, after, found := strings.Cut(rest, "{{")
		name += before
		if !found {
			break
		}
		inside, behind, closed := strings.Cut(after, "}}")
		where, dot := strings.CutPrefix(strings.TrimSpace(inside), ".")
		if !closed || !dot || where != "identity" && !strings.HasPrefix(where, "facts.") {
			return "", fmt.Errorf("DNS name %.300q: want {{.identity}} or {{.facts.NAME}} between braces", template)
		}
		text, err := value(where)
		if err != nil {
			return "", fmt.Errorf("DNS name %.300q: %w", template, err)
		}
		name, rest = name+text, behind
	}
	id, err := ParseName(name)
	if err != nil {
		return "", fmt.Errorf("DNS name %.300q: %w", template, err)
	}
	return id, nil
}

// RenewAt returns when a certificate is to be renewed: after a fraction of its life such as "66%", or a span such as
// "10d" before its end, but not in the first half of its life. "" is two thirds.
func RenewAt(renew string, notBefore, notAfter time.Time) (time.Time, error) {
	if renew == "" {
		return notBefore.Add(notAfter.Sub(notBefore) / 3 * 2), nil
	}
	if percent, is := strings.CutSuffix(renew, "%"); is {
		n, err := strconv.Atoi(percent)
		if err != nil || n < 1 || n > 99 {
			return time.Time{}, fmt.Errorf("%.80q, want 1%% to 99%%", renew)
		}
		return notBefore.Add(notAfter.Sub(notBefore) / 100 * time.Duration(n)), nil
	}
	before, err := span.Parse(renew)
	return notAfter.Add(-min(before, notAfter.Sub(notBefore)/2)), err
}

// All returns the files by their names in a specification.
func (f *SpecificationFiles) All() map[string]*SpecificationFile {
	all := map[string]*SpecificationFile{"key": f.Key, "certificate": f.Certificate, "chain": f.Chain, "ca": f.CA,
		"combined": f.Combined}
	for name, file := range all {
		if file == nil {
			delete(all, name)
		}
	}
	return all
}

// Holds reports whether a file has the part: key, certificate, chain or ca.
func (f *SpecificationFiles) Holds(file, part string) bool {
	if file != "combined" || f.Combined == nil {
		return file == part
	}
	order := f.Combined.Order
	if len(order) == 0 {
		order = DefaultOrder
	}
	return slices.Contains(order, part)
}

func (f *SpecificationFiles) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	all, paths := f.All(), make(map[string]string)
	for _, part := range []string{"key", "certificate"} {
		if all[part] == nil && (f.Combined == nil || !f.Holds("combined", part)) {
			bad("files: no file for the %s", part)
		}
	}
	for _, name := range [...]string{"key", "certificate", "chain", "ca", "combined"} {
		file := all[name]
		if file == nil {
			continue
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
		} else if others := mode & 0o7; others&2 != 0 || others != 0 && f.Holds(name, "key") {
			bad("files: %s: mode %s lets other users write it, or read a key", name, file.Mode)
		}
		for i, part := range file.Order {
			if name != "combined" || !slices.Contains(combinedParts, part) || slices.Contains(file.Order[:i], part) {
				bad("files: %s: order %.80q, want each of %q at most once, in the combined file", name, part,
					combinedParts)
			}
		}
	}
	return errors.Join(errs...)
}

// Perm returns the file's mode, or preset if it has none.
func (f *SpecificationFile) Perm(preset uint32) (uint32, error) {
	if f.Mode == "" {
		return preset, nil
	}
	mode, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil || len(f.Mode) > 4 || mode > 0o777 {
		return 0, fmt.Errorf("mode %.20q, want octal digits such as \"0640\", at most 0777", f.Mode)
	}
	return uint32(mode), nil
}
