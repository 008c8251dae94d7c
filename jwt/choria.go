package jwt

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// ErrClient means that a token is no client JWT of Choria's for its purpose, or not that of the key beside it.
var ErrClient = errors.New("not a usable client token of Choria")

// A Client is a client JWT of Choria's with its key. Its signature is not verified: that is up to Choria's servers.
type Client struct {
	Text    string
	Caller  string // such as "choria=ops"
	Expires time.Time
	key     ed25519.PrivateKey
	claims  clientClaims
}

type clientClaims struct {
	Purpose     string `json:"purpose"`
	Caller      string `json:"callerid"`
	Org         string `json:"ou"`
	PublicKey   string `json:"public_key"`
	Chain       string `json:"tcs"`
	Issuer      string `json:"iss"`
	ID          string `json:"jti"`
	Expires     int64  `json:"exp"`
	Permissions struct {
		OrgAdmin bool `json:"org_admin"`
		Fleet    bool `json:"fleet_management"`
	} `json:"permissions"`
}

// ParseClient reads a client JWT and the seed of its key, in 64 hex digits. The error wraps [ErrClient].
func ParseClient(text, seed string) (*Client, error) {
	parts := strings.Split(text, ".")
	if len(text) > MaxTokenBytes || len(parts) != 3 {
		return nil, fmt.Errorf("%w: %d bytes, want a JWT of at most %d", ErrClient, len(text), MaxTokenBytes)
	}
	payload, err := decodePart("claims", parts[1])
	c := &Client{Text: text}
	if err == nil {
		err = json.Unmarshal(payload, &c.claims)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrClient, err)
	}
	b, ok := hexKey([]byte(seed))
	if !ok {
		return nil, fmt.Errorf("%w: its seed is not 64 hex digits", ErrClient)
	}
	c.key = ed25519.NewKeyFromSeed(b)
	switch public := hex.EncodeToString(c.key.Public().(ed25519.PublicKey)); {
	case c.claims.Purpose != "choria_client_id":
		return nil, fmt.Errorf("%w: purpose %.60q, want choria_client_id", ErrClient, c.claims.Purpose)
	case c.claims.PublicKey != public:
		return nil, fmt.Errorf("%w: it belongs to another key than the seed's", ErrClient)
	}
	c.Caller, c.Expires = c.claims.Caller, time.Unix(c.claims.Expires, 0)
	return c, nil
}

// Sign signs with the client's key.
func (c *Client) Sign(message []byte) []byte { return ed25519.Sign(c.key, message) }

const issuerPrefix = "I-"

// CheckIssuer returns why the client cannot issue server JWTs in a chain of trust, or nil. An issuer may provision
// servers and do nothing else, since its key is on each provisioner. The error wraps [ErrClient].
func (c *Client) CheckIssuer() error {
	organization, ok := strings.CutPrefix(c.claims.Issuer, issuerPrefix)
	key, isKey := hexKey([]byte(organization))
	signature, err := hex.DecodeString(c.claims.Chain)
	switch p := c.claims.Permissions; {
	case !ok || !isKey || err != nil || len(signature) != ed25519.SignatureSize:
		return fmt.Errorf("%w: no chain issuer: make it with `choria jwt client … --issuer`", ErrClient)
	case !ed25519.Verify(key, []byte(c.claims.ID+"."+c.claims.PublicKey), signature):
		return fmt.Errorf("%w: the organization did not sign its chain of trust", ErrClient)
	case p.OrgAdmin || p.Fleet: // --server-provisioner adds the permission to manage the fleet
		return fmt.Errorf("%w: the issuer may also manage the fleet: make one with `choria jwt client … --issuer`, "+
			"without --server-provisioner and --org-admin", ErrClient)
	}
	return nil
}

// Organization returns the name of the client's organization, and of an issuer also the key, in hex.
func (c *Client) Organization() (name, key string) {
	return c.claims.Org, strings.TrimPrefix(c.claims.Issuer, issuerPrefix)
}

// A Server describes a server JWT.
type Server struct {
	Identity    string
	PublicKey   ed25519.PublicKey
	Collectives []string
	Issued      time.Time
	Expires     time.Time // the issuer's end if that is earlier
}

// SignServer signs a server JWT in the client's chain of trust; see [Client.CheckIssuer].
func (c *Client) SignServer(s Server) (string, error) {
	if s.Expires.After(c.Expires) {
		s.Expires = c.Expires
	}
	id := ksuid(s.Issued)
	chain := ed25519.Sign(c.key, []byte(id+"."+c.claims.Chain))
	body, err := json.Marshal(map[string]any{
		"purpose":     "choria_server",
		"identity":    s.Identity,
		"public_key":  hex.EncodeToString(s.PublicKey),
		"collectives": s.Collectives,
		"permissions": map[string]bool{"submission": true, "streams": true},
		"ou":          c.claims.Org,
		"iss":         "C-" + c.claims.ID + "." + c.claims.PublicKey,
		"tcs":         c.claims.Chain + "." + hex.EncodeToString(chain),
		"issexp":      c.Expires.Unix(),
		"iat":         s.Issued.Unix(),
		"nbf":         s.Issued.Unix(),
		"exp":         s.Expires.Unix(),
		"jti":         id,
	})
	if err != nil {
		return "", err
	}
	return signCompact(c.key, body)
}

// ksuid returns an id of the form that Choria compares with the time of issue: seconds since 2014-05-13 and 16 random
// bytes, 27 digits in base 62.
func ksuid(at time.Time) string {
	const epoch = 1_400_000_000
	var b [20]byte
	binary.BigEndian.PutUint32(b[:], uint32(at.Unix()-epoch)) // until 2150
	_, _ = rand.Read(b[4:])
	digits := strings.Map(func(r rune) rune { // math/big has lower-case letters first
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, new(big.Int).SetBytes(b[:]).Text(62))
	return strings.Repeat("0", 27-len(digits)) + digits
}
