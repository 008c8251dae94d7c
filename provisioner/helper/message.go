package helper

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"muster/internal/wire"
)

// A Request is the helper's input about a node.
type Request struct {
	Source netip.Prefix // of the node, for the shares; not sent

	Identity string // claimed by the key that signed the CSR
	CSR      []byte // DER, verified

	// Key is the verified key of a Choria server without a CSR.
	Key ed25519.PublicKey

	// Directory of the key's files, and Inventory, are those of a Choria server. Nil: an inventory with Facts alone.
	Directory string
	Inventory json.RawMessage

	// Facts is the node's JSON object, unproven. Nil means {}.
	Facts json.RawMessage

	// Claims are the verified token's, under Choria's names, without the secrets cht and chpwd.
	Claims map[string]any
}

// inventory has the form of Choria's rpcutil#inventory reply.
type inventory struct {
	Agents         []string        `json:"agents"`
	Classes        []string        `json:"classes"`
	Collectives    []string        `json:"collectives"`
	DataPlugins    []string        `json:"data_plugins"`
	Facts          json.RawMessage `json:"facts"`
	Machines       []string        `json:"machines"`
	MainCollective string          `json:"main_collective"`
	Version        string          `json:"version"` // empty
	Upgradable     bool            `json:"upgradable"`
}

func (r Request) inventory() ([]byte, error) {
	if r.Inventory != nil {
		return r.Inventory, nil
	}
	facts := r.Facts
	if len(bytes.TrimSpace(facts)) == 0 {
		facts = json.RawMessage("{}")
	}
	none := []string{}
	return json.Marshal(inventory{
		Agents:         none,
		Classes:        none,
		Collectives:    []string{"provisioning"},
		DataPlugins:    none,
		Facts:          facts,
		Machines:       none,
		MainCollective: "provisioning",
	})
}

func (r Request) encode() ([]byte, error) {
	inv, err := r.inventory()
	if err != nil {
		return nil, fmt.Errorf("encode facts of %q: %w", r.Identity, err)
	}
	claims := make(map[string]any, len(r.Claims)+2)
	maps.Copy(claims, r.Claims)
	claims["cht"], claims["chpwd"] = "", ""

	type csr struct {
		CSR       string `json:"csr"`
		PublicKey string `json:"public_key"`
		SSLDir    string `json:"ssldir"`
	}
	type bareKey struct {
		PublicKey string `json:"public_key"`
		Directory string `json:"directory"`
		Signature string `json:"signature"` // empty: it is verified
	}
	var request *csr
	var key *bareKey
	if len(r.CSR) == 0 {
		key = &bareKey{PublicKey: hex.EncodeToString(r.Key), Directory: r.Directory}
	} else {
		parsed, err := x509.ParseCertificateRequest(r.CSR)
		if err != nil {
			return nil, fmt.Errorf("certificate request: %w", err)
		}
		request = &csr{
			CSR:       encodePEM("CERTIFICATE REQUEST", r.CSR),
			PublicKey: encodePEM("PUBLIC KEY", parsed.RawSubjectPublicKeyInfo),
			SSLDir:    r.Directory,
		}
	}
	b, err := json.Marshal(struct {
		Identity  string         `json:"identity"`
		CSR       *csr           `json:"csr"`
		Ed25519   *bareKey       `json:"ed25519_pubkey"`
		Inventory string         `json:"inventory"`
		JWT       map[string]any `json:"jwt"`
	}{
		Identity:  r.Identity,
		CSR:       request,
		Ed25519:   key,
		Inventory: string(inv),
		JWT:       claims,
	})
	if err != nil {
		return nil, fmt.Errorf("encode claims for %q: %w", r.Identity, err)
	}
	return b, nil
}

func encodePEM(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

// A Response is the helper's answer. Shutdown ends the node's agent. Otherwise Defer makes the node ask again later.
type Response struct {
	Defer    bool
	Shutdown bool

	// Msg is for the log, not for the node.
	Msg string

	// Files are pushed to the node.
	Files wire.Files
}

type output struct {
	Defer          bool               `json:"defer"`
	Shutdown       bool               `json:"shutdown"`
	Msg            string             `json:"msg"`
	Configuration  map[string]*string `json:"configuration"`
	ActionPolicies map[string]*string `json:"action_policies"`
	OPAPolicies    map[string]*string `json:"opa_policies"`

	Key          empty `json:"key"`
	Certificate  empty `json:"certificate"`
	CA           empty `json:"ca"`
	SSLDir       empty `json:"ssldir"`
	ServerClaims empty `json:"server_claims"`
	Upgrade      empty `json:"upgrade"`
}

// decode keeps values out of errors, since they may be secrets.
func decode(b []byte) (*Response, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, fmt.Errorf("%w: nothing on standard output, want a JSON object", ErrOutput)
	}
	if b := bytes.TrimSpace(b); b[0] != '{' {
		return nil, fmt.Errorf("%w: standard output begins with %q, want a JSON object", ErrOutput, b[:1])
	}
	var out output
	if err := wire.DecodeStrict(b, &out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	r := Response{Defer: out.Defer, Shutdown: out.Shutdown, Msg: out.Msg}
	var errs [3]error
	r.Files.Configuration, errs[0] = stringMap("configuration", out.Configuration)
	r.Files.ActionPolicies, errs[1] = stringMap("action_policies", out.ActionPolicies)
	r.Files.OPAPolicies, errs[2] = stringMap("opa_policies", out.OPAPolicies)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return &r, nil
}

// empty is a member of Choria's that must be empty.
type empty struct{}

// UnmarshalJSON implements [json.Unmarshaler].
func (*empty) UnmarshalJSON(text []byte) error {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return err
	}
	switch b.String() {
	case `null`, `""`, `{}`, `[]`, `false`, `0`:
		return nil
	}
	return errors.New("must be empty: muster issues certificates itself and upgrades nothing")
}

func stringMap(member string, from map[string]*string) (map[string]string, error) {
	if from == nil {
		return nil, nil
	}
	to := make(map[string]string, len(from))
	for key, value := range from {
		if value == nil {
			return nil, fmt.Errorf("%s: key %q is not a string", member, key)
		}
		to[key] = *value
	}
	return to, nil
}
