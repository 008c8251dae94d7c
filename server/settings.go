package server

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"muster/jwt"
	"muster/server/link"
)

// A Setting is one line of [ReadSettings].
type Setting struct {
	Name  string `json:"name"` // as in Choria's `buildinfo`
	Value any    `json:"value"`
}

// ReadSettings returns how token and server.conf provision this machine, in the order of Choria's `buildinfo`. problem
// is a missing or unusable token; err is about cfg.
func ReadSettings(cfg Config) (list []Setting, problem, err error) {
	cfg, err = cfg.complete()
	if err != nil {
		return nil, nil, err
	}
	paths := (&state{cfg: cfg}).tokenFiles()
	t, problem := readToken(paths)
	switch {
	case problem == nil:
		problem = t.usable()
	case errors.Is(problem, ErrMissing):
		problem = fmt.Errorf("no token: %w", problem)
	}
	t = cmp.Or(t, &token{Unverified: &jwt.Unverified{}, file: paths[0]})
	byDefault := t.Default
	_, says, _ := readConf(cfg.ConfFile) // provision applies even if the rest of the file cannot be used
	if says.Yes != says.No {
		byDefault = says.Yes
	}
	secret := "not set" // never show the shared secret of Choria's remote commands
	if t.Token != "" {
		secret = "set"
	}
	list = []Setting{
		{"Provisioning Default", byDefault},
		{"Provisioning TLS", t.Secure},
		{"Provisioning Target Resolver", "Default"},
		{"Default Provisioning Agent", true},
		{"Provisioning Token", secret},
	}
	if t.SRVDomain != "" {
		list = append(list, Setting{"Provisioning SRV Domain", t.SRVDomain})
	}
	if urls := t.URLs(); len(urls) > 0 {
		list = append(list, Setting{"Provisioning Brokers", strings.Join(urls, ", ")})
	}
	return append(list, Setting{"Provisioning JWT file", t.file}), link.OneLine(problem), nil
}
