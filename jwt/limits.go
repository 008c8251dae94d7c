package jwt

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"muster/internal/wire"
)

const limitsMember = "muster"

// A Site names a location that a provisioner serves. See [ParseSite].
type Site string

// At most 63 characters, as a DNS label has.
var sitePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ParseSite accepts 1 to 63 letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
func ParseSite(s string) (Site, error) {
	if !sitePattern.MatchString(s) {
		return "", fmt.Errorf("site %.80q, want 1 to 63 letters, digits, ., _ and -, a letter or digit first", s)
	}
	return Site(s), nil
}

// Limits are muster's own conditions, from the member "muster" of extensions. The zero value limits nothing.
type Limits struct {
	// Uses is how many distinct keys may get a certificate; 0: no limit.
	Uses int `json:"uses,omitempty"`

	// Identities selects the nodes that may use the token; empty: all.
	Identities []wire.Pattern `json:"identities,omitempty"`

	// Site is the only site that accepts the token; empty: every site.
	Site Site `json:"site,omitempty"`

	// Seal is the X25519 public key to which requests are sealed: 32 bytes in base64url without padding. Empty:
	// requests are not sealed.
	Seal string `json:"seal,omitempty"`

	// CA is the SHA-256 of the root certificate that nodes require: of its DER, in lower-case hex. Empty: nodes accept
	// any.
	CA string `json:"ca,omitempty"`
}

var limitNames = jsonNames(reflect.TypeFor[Limits]())

func (l Limits) members() (members map[string]json.RawMessage) {
	b, _ := json.Marshal(l)
	_ = json.Unmarshal(b, &members)
	return members
}

func abbreviate[T ~string](all []T) string {
	const most = 3
	if len(all) <= most {
		return fmt.Sprintf("%q", all)
	}
	return fmt.Sprintf("%q and %d more", all[:most], len(all)-most)
}

// Check returns every mistake in l, but only the first in the identities.
func (l Limits) Check() error {
	var errs []error
	if l.Uses < 0 {
		errs = append(errs, fmt.Errorf("uses %d, want 1 or more", l.Uses))
	}
	for _, p := range l.Identities {
		if _, err := wire.ParsePattern(string(p)); err != nil {
			errs = append(errs, fmt.Errorf("identities: %w", err))
			break
		}
	}
	if l.Site != "" {
		_, err := ParseSite(string(l.Site))
		errs = append(errs, err)
	}
	if l.Seal != "" {
		b, err := base64.RawURLEncoding.Strict().DecodeString(l.Seal)
		if err != nil || len(b) != 32 || len(l.Seal) != 43 {
			errs = append(errs, errors.New("seal is not an X25519 public key, 32 bytes in base64url without padding"))
		}
	}
	if l.CA != "" {
		if b, err := hex.DecodeString(l.CA); err != nil || len(b) != 32 || l.CA != strings.ToLower(l.CA) {
			errs = append(errs, fmt.Errorf("ca %.80q is not a SHA-256, 64 lower-case hex digits", l.CA))
		}
	}
	return errors.Join(errs...)
}

// SetLimits replaces the limits in the extensions of c, in a new map. Zero limits remove the member. It refuses
// identities that no node can have.
func (c *Claims) SetLimits(l Limits) error {
	errs := []error{l.Check()}
	for _, p := range l.Identities {
		errs = append(errs, p.CheckReserved())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	extensions := maps.Clone(c.Extensions)
	delete(extensions, limitsMember)
	if len(l.members()) > 0 {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if extensions == nil {
			extensions = make(map[string]json.RawMessage)
		}
		extensions[limitsMember] = b
	}
	if len(extensions) == 0 {
		extensions = nil
	}
	c.Extensions = extensions
	return nil
}

// Limits returns the limits in the extensions of c. The error wraps [ErrLimit] or [ErrMalformed].
func (c *Claims) Limits() (Limits, error) {
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		if name != limitsMember && strings.EqualFold(name, limitsMember) { // a misspelled member would not be enforced
			return Limits{}, fmt.Errorf("%w: extensions: member %q, want it spelled %q",
				ErrMalformed, name, limitsMember)
		}
	}
	raw, ok := c.Extensions[limitsMember]
	if !ok {
		return Limits{}, nil
	}
	l, err := decodeLimits(raw)
	if err == nil && l.Uses > 0 && (c.JTI == "" || c.IssuedAt.IsZero()) {
		err = fmt.Errorf("%w: uses need a jti to be counted by, and an iat", ErrMalformed)
	}
	if err != nil {
		return Limits{}, fmt.Errorf("extensions.%s: %w", limitsMember, err)
	}
	return l, nil
}

// decodeLimits is strict: an unknown limit cannot be enforced.
func decodeLimits(raw json.RawMessage) (Limits, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return Limits{}, fmt.Errorf("%w: not a JSON object", ErrMalformed)
	}
	for name := range members {
		if !slices.Contains(limitNames, name) {
			return Limits{}, fmt.Errorf("%w: %.80q", ErrLimit, name)
		}
	}
	var l Limits
	if err := wire.DecodeStrict(raw, &l); err != nil {
		return Limits{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := l.Check(); err != nil {
		return Limits{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	// Readers disagree about empty limits: an empty list of identities can mean all or none.
	if len(l.members()) != len(members) {
		return Limits{}, fmt.Errorf("%w: a limit is empty; leave it out to limit nothing", ErrMalformed)
	}
	return l, nil
}
