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

// limitsMember is where in a token's extensions the limits are.
const limitsMember = "muster"

// A Site names a place that a provisioner serves, as its configuration spells
// it. See [ParseSite].
type Site string

// sitePattern is what a [Site] may be: at most one DNS label long, so that a site can be part
// of a host name.
var sitePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ParseSite returns s as a site: 1 to 63 letters, digits, `.`, `_`
// and `-`, the first of them a letter or a digit. Case matters.
func ParseSite(s string) (Site, error) {
	if !sitePattern.MatchString(s) {
		return "", fmt.Errorf("site %.80q, want 1 to 63 letters, digits, ., _ and -, a letter or digit first", s)
	}
	return Site(s), nil
}

// Limits are the conditions that only muster knows, from the member "muster"
// of a token's extensions. The zero value limits nothing.
type Limits struct {
	// Uses is how many distinct keys may get a certificate. Zero means that
	// the token does not say, so that there is no limit.
	Uses int `json:"uses,omitempty"`

	// Identities selects the nodes that the token is for. Empty means any.
	Identities []wire.Pattern `json:"identities,omitempty"`

	// Site is the only site where the token is good. Empty means any.
	Site Site `json:"site,omitempty"`

	// Seal is the X25519 public key to which requests are sealed: 32 bytes in
	// base64url without padding. Empty means that requests are not sealed.
	Seal string `json:"seal,omitempty"`

	// CA is the lower-case hex SHA-256 of the DER of the authority's certificate
	// that nodes insist on. Empty means that nodes take what they get.
	CA string `json:"ca,omitempty"`
}

// limitNames are the members of Limits.
var limitNames = namesOf(reflect.TypeFor[Limits]())

// members returns the limits that l sets, as JSON by name.
func (l Limits) members() (members map[string]json.RawMessage) {
	b, _ := json.Marshal(l) // cannot fail with texts and numbers
	_ = json.Unmarshal(b, &members)
	return members
}

// first writes the first few of what a token, or a signer, is limited to:
// a token may list hundreds.
func first[T ~string](all []T) string {
	const most = 3
	if len(all) <= most {
		return fmt.Sprintf("%q", all)
	}
	return fmt.Sprintf("%q and %d more", all[:most], len(all)-most)
}

// Check reports everything that is wrong with l at once, of the identities the first. A count of uses is
// kept under the signer's id of the token, so it needs one: that is checked
// where the token is decoded.
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
		if _, err := ParseSite(string(l.Site)); err != nil {
			errs = append(errs, err)
		}
	}
	if l.Seal != "" {
		if b, err := base64.RawURLEncoding.Strict().DecodeString(l.Seal); err != nil || len(b) != 32 || len(l.Seal) != 43 {
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

// SetLimits writes l into the extensions of c, in a map of its own so that
// other copies of c keep theirs, and replaces what was there. Zero limits
// remove the member.
func (c *Claims) SetLimits(l Limits) error {
	if err := l.Check(); err != nil {
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

// Limits returns the limits in the extensions of c. The error wraps [ErrLimit]
// if there is one that this version does not know, else [ErrMalformed].
func (c *Claims) Limits() (Limits, error) {
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		if name != limitsMember && strings.EqualFold(name, limitsMember) { // a limit that would not be enforced
			return Limits{}, fmt.Errorf("%w: extensions: member %q, want it spelled %q", ErrMalformed, name, limitsMember)
		}
	}
	raw, ok := c.Extensions[limitsMember]
	if !ok {
		return Limits{}, nil
	}
	l, err := decodeLimits(raw)
	if err == nil && l.Uses > 0 && c.JTI == "" {
		err = fmt.Errorf("%w: uses without a jti, under which they are counted", ErrMalformed)
	}
	if err != nil {
		return Limits{}, fmt.Errorf("extensions.%s: %w", limitsMember, err)
	}
	return l, nil
}

// decodeLimits decodes strictly: what is there is an order, so anything that
// is not understood in full is an error.
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
	// Empty and absent would be told apart by some: an empty list of identities is
	// any to one reader and none to another.
	if len(l.members()) != len(members) {
		return Limits{}, fmt.Errorf("%w: an empty limit; leave it out to limit nothing", ErrMalformed)
	}
	return l, nil
}
