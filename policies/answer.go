package policies

import "muster/internal/wire"

// An Answer is a decision for operators, without values that have the name of a secret.
type Answer struct {
	Verdict       Verdict           `json:"verdict"`
	Reasons       []string          `json:"reasons"`
	Policy        string            `json:"policy,omitempty"`
	TTL           string            `json:"ttl,omitempty"`
	DNSNames      []string          `json:"dns_names,omitempty"`
	IPAddresses   []string          `json:"ip_addresses,omitempty"`
	URIs          []string          `json:"uris,omitempty"`
	ServerAuth    bool              `json:"server_auth,omitempty"`
	ClientAuth    bool              `json:"client_auth,omitempty"`
	Configuration map[string]string `json:"configuration,omitempty"`
	Error         string            `json:"error,omitempty"`

	Certificates map[string]wire.Specification `json:"certificates,omitzero"`
}

// NewAnswer describes the result of [Engine.Preview].
func NewAnswer(d *Decision, err error) *Answer {
	if d == nil {
		return &Answer{Verdict: VerdictFailed, Error: err.Error()}
	}
	a := &Answer{
		Verdict:       d.Verdict(),
		Reasons:       d.Why(),
		Policy:        d.Digest,
		DNSNames:      d.Certificate.DNSNames,
		IPAddresses:   d.Certificate.IPAddresses,
		URIs:          d.Certificate.URIs,
		ServerAuth:    d.Certificate.ServerAuth,
		ClientAuth:    d.Certificate.ClientAuth,
		Configuration: d.Configuration,
		Certificates:  d.Certificates,
	}
	if err != nil { // enrollment refuses what the policy decides
		a.Verdict, a.Error = VerdictFailed, err.Error()
	}
	if d.Certificate.TTL > 0 {
		a.TTL = d.Certificate.TTL.String()
	}
	for key := range a.Configuration {
		if IsSecretName(key) {
			a.Configuration[key] = Redacted
		}
	}
	return a
}
