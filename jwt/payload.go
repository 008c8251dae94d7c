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

type claims Claims

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

// Names that differ from these only in case are refused: encoding/json accepts them, other decoders do not.
var claimNames = jsonNames(reflect.TypeFor[payload]())

func jsonNames(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

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
			// Decoders disagree about null. Choria writes null only for extensions.
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
		return Claims{}, fmt.Errorf("claims: %.200s", err.Error()) // it quotes whole numbers
	}
	if strings.Contains(c.Brokers, "@") { // logs and records do not redact this claim
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

func (c *Claims) encode() ([]byte, error) {
	// JSON encoding would replace invalid UTF-8 and so change the secret.
	if !utf8.ValidString(string(c.Token)) || !utf8.ValidString(string(c.Password)) {
		return nil, errors.New("the secret or the password is not UTF-8: use one such as `openssl rand -hex 16` prints")
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

// numericDate is a NumericDate (RFC 7519 section 2).
type numericDate time.Time

const maxNumericDate = 253402300799

func (d numericDate) IsZero() bool { return time.Time(d).IsZero() }

// MarshalJSON implements [json.Marshaler].
func (d numericDate) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Time(d).Unix(), 10), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. It drops fractions, so that a token expires early rather than late. It
// refuses 0, which other decoders treat as an absent claim.
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
