package jwt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	gojwt "github.com/golang-jwt/jwt/v5"

	"muster/internal/wire"
)

// claims is [Claims] without its methods.
type claims Claims

// payload is the JSON shape of the claims: of those that Claims does not write
// itself, the form on the token.
type payload struct {
	*claims
	Token           string             `json:"cht"`
	Password        string             `json:"chpwd,omitempty"`
	IssuerExpiresAt numericDate        `json:"issexp,omitzero"`
	Audience        gojwt.ClaimStrings `json:"aud,omitempty"`
	ExpiresAt       numericDate        `json:"exp,omitzero"`
	NotBefore       numericDate        `json:"nbf,omitzero"`
	IssuedAt        numericDate        `json:"iat,omitzero"`
}

// claimNames are the members of a payload. A name that differs from one of
// them in case only is refused: decoders such as encoding/json would take it
// for the claim, others would not.
var claimNames = namesOf(reflect.TypeFor[payload]())

func namesOf(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// decodeClaims decodes the payload of a token strictly, except that it keeps
// claims that it does not know.
func decodeClaims(b []byte) (Claims, error) {
	if err := wire.CheckStrict(b); err != nil {
		return Claims{}, fmt.Errorf("claims: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		return Claims{}, errors.New("claims: not a JSON object")
	}
	var extra map[string]json.RawMessage
	for name, value := range members {
		if slices.Contains(claimNames, name) {
			// Null and absent would differ between decoders. Choria writes
			// null for extensions and for nothing else.
			if name != "extensions" && bytes.Equal(value, []byte("null")) {
				return Claims{}, fmt.Errorf("claims: member %q is null", name)
			}
			continue
		}
		for _, known := range claimNames {
			if strings.EqualFold(name, known) {
				return Claims{}, fmt.Errorf("claims: member %q, want it spelled %q", name, known)
			}
		}
		if extra == nil {
			extra = make(map[string]json.RawMessage)
		}
		extra[name] = value
	}
	c := Claims{Extra: extra}
	p := payload{claims: (*claims)(&c)}
	if err := json.Unmarshal(b, &p); err != nil {
		return Claims{}, fmt.Errorf("claims: %.200s", err.Error()) // it quotes numbers whole
	}
	if strings.Contains(c.Brokers, "@") { // a secret where logs and records do not look for one
		return Claims{}, fmt.Errorf("claims: %w", errUserInURL)
	}
	c.Token, c.Password = wire.Secret(p.Token), wire.Secret(p.Password)
	c.IssuerExpiresAt, c.ExpiresAt = time.Time(p.IssuerExpiresAt), time.Time(p.ExpiresAt)
	c.NotBefore, c.IssuedAt = time.Time(p.NotBefore), time.Time(p.IssuedAt)
	c.Organization = cmp.Or(c.Organization, DefaultOrganization)
	if len(p.Audience) > 0 {
		c.Audience = p.Audience
	}
	return c, nil
}

// encode returns the payload of a token, without c.Extra.
func (c *Claims) encode() ([]byte, error) {
	// JSON would put U+FFFD in the place of each such byte: another secret than was given.
	if !utf8.ValidString(string(c.Token)) || !utf8.ValidString(string(c.Password)) {
		return nil, errors.New("the secret or the password is not UTF-8, which is all that a token can hold: make one as `openssl rand -hex 16` does")
	}
	p := payload{
		claims:          (*claims)(c),
		Token:           string(c.Token),
		Password:        string(c.Password),
		IssuerExpiresAt: numericDate(c.IssuerExpiresAt),
		Audience:        c.Audience,
		ExpiresAt:       numericDate(c.ExpiresAt),
		NotBefore:       numericDate(c.NotBefore),
		IssuedAt:        numericDate(c.IssuedAt),
	}
	return json.Marshal(p) //nolint:gosec // G117: a token carries its secrets, that is what it is for
}

// numericDate is the NumericDate of RFC 7519 section 2, read with fractions
// and written without.
type numericDate time.Time

// maxNumericDate is the end of the year 9999, the last that RFC 3339 writes.
const maxNumericDate = 253402300799

func (d numericDate) IsZero() bool { return time.Time(d).IsZero() }

// MarshalJSON implements [json.Marshaler].
func (d numericDate) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Time(d).Unix(), 10), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. A fraction is cut off, which
// makes a token expire early rather than late. The instant 0 is refused
// because it would be taken for an absent claim by decoders that use integers.
func (d *numericDate) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return fmt.Errorf("%.40s is not a NumericDate", b)
	}
	if f = math.Floor(f); f < 1 || f > maxNumericDate {
		return fmt.Errorf("NumericDate %.40s, want 1 to %d", b, int64(maxNumericDate))
	}
	*d = numericDate(time.Unix(int64(f), 0).UTC())
	return nil
}
