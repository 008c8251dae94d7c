package demo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"muster/internal/keyfile"
	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/operate"
)

// MinStay is enough for each part of a fleet to have nodes.
const MinStay = 20

// A Place is how to reach a running demo, and the output of -o json.
type Place struct {
	Dir       string     `json:"dir"`
	Config    string     `json:"config"` // for --config
	URL       string     `json:"url"`    // of API and console
	Operators []Operator `json:"operators"`
	Parts     []Part     `json:"parts"`
}

// An Operator is one operator of the fleet, with the files to log in with.
type Operator struct {
	Name       string             `json:"name"`
	Role       trust.OperatorRole `json:"role"`
	Credential string             `json:"credential"` // file for --login: key, certificate and roots
	TokenFile  string             `json:"token_file"` // for --login and the console, valid for an hour
}

// A Part is the group of nodes with the same outcome.
type Part struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Nodes   int    `json:"nodes"`
	Example string `json:"example"` // name of one node

	role, token string
	member      bool
}

// parts divides n nodes; the first part gets the remainder.
func parts(n int) []Part {
	all := []Part{
		{Name: "members", What: "provisioned and connected", role: "web", token: "fleet", member: true},
		{Name: "waiting", What: "wait for your approval", Nodes: max(2, n/60), role: "edge", token: "open"},
		{
			Name:  "denied",
			What:  "denied by the policy: in quarantine",
			Nodes: max(1, n/150),
			role:  "lab",
			token: "fleet",
		},
		{
			Name:   "revoked",
			What:   "revoked, and keep trying",
			Nodes:  max(1, n/500),
			role:   "app",
			token:  "fleet",
			member: true,
		},
	}
	all[0].Nodes = n
	for i := range all {
		if i > 0 {
			all[0].Nodes -= all[i].Nodes
		}
		all[i].Example = all[i].machine(0).name
	}
	return all
}

func (p *Part) machine(i int) machine {
	return machine{fmt.Sprintf("%s%d.example.net", p.role, i+1), p.token, map[string]any{
		"role":         p.role,
		"rack":         fmt.Sprintf("ams1-r%02d", 1+i/20),
		"kernel":       "linux",
		"serialnumber": fmt.Sprintf("PX-%s-%05d", p.role, i+1),
		"quarantine":   p.Name == "denied",
	}, p.member}
}

// Stay runs an installation with operators and a fleet of real agents, some of them waiting, refused or revoked. It
// calls ready and returns nil once ctx is done. The files stay in cfg.Dir.
func Stay(ctx context.Context, cfg Config, ready func(*Place)) error {
	in, err := install(cfg, false) //nolint:contextcheck // bounded by the time-out of the policy's tests
	if err != nil {
		return err
	}
	s := &stay{in, parts(cfg.Nodes)}
	err = in.daemon.RunDuring(ctx, func(ctx context.Context) error { return s.run(ctx, ready) })
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type stay struct {
	*installation
	parts []Part
}

func (s *stay) run(ctx context.Context, ready func(*Place)) error {
	// The default policy admits the names that a token lists.
	err := errors.Join(s.issue("open"), s.issue("fleet", "web*.example.net", "app*.example.net", "lab*.example.net"))
	if err != nil {
		return err
	}
	operators, err := s.addOperators(ctx)
	if err != nil {
		return err
	}
	var all []machine
	for _, part := range s.parts {
		for i := range part.Nodes {
			all = append(all, part.machine(i))
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer s.agents.Wait()
	defer stop()
	s.enroll(ctx, all)
	nodes, cause := s.daemon.Orders().Nodes, trust.Cause{By: "demo", Why: "to see one"}
	for _, part := range s.parts {
		for i := range part.Nodes {
			if part.Name == "revoked" {
				err = errors.Join(err, nodes.Revoke(ctx, wire.Identity(part.machine(i).name), cause))
			}
		}
	}
	if err != nil {
		return err
	}
	ready(&Place{
		Dir:       s.cfg.Dir,
		Config:    filepath.Join(s.home(), "provisioner.yaml"),
		URL:       s.daemon.APIURL(),
		Operators: operators,
		Parts:     s.parts,
	})
	<-ctx.Done()
	return nil
}

// addOperators adds an operator of each role, and writes certificate and token to files.
func (s *stay) addOperators(ctx context.Context) ([]Operator, error) {
	all := []Operator{
		{Name: "anna", Role: trust.RoleAdmin},
		{Name: "otto", Role: trust.RoleOperator},
		{Name: "vera", Role: trust.RoleViewer},
	}
	for i := range all {
		o := &all[i]
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		public, err := jwt.MarshalPublicKey(key.Public())
		if err != nil {
			return nil, err
		}
		private, err := keyfile.Marshal(key, nil)
		if err != nil {
			return nil, err
		}
		added, err := s.daemon.Orders().Operators.Add(ctx,
			operate.NewOperator{Name: o.Name, Role: o.Role, Public: public, Certificate: true},
			trust.Cause{By: "demo", Why: "to try things"})
		if err != nil {
			return nil, err
		}
		path := filepath.Join(s.cfg.Dir, "operators", o.Name)
		o.Credential, o.TokenFile = path+".pem", path+".jwt"
		now := time.Now()
		token, err := jwt.SignOperator(key, jwt.OperatorClaims{
			Operator:  o.Name,
			Audience:  s.daemon.Store().Installation().ID,
			ID:        jwt.NewJTI(),
			IssuedAt:  now,
			ExpiresAt: now.Add(jwt.MaxOperatorTTL),
		})
		if err := errors.Join(
			err,
			os.WriteFile(o.Credential, []byte(string(private)+added.Chain+added.Roots), 0o600),
			os.WriteFile(o.TokenFile, []byte(token+"\n"), 0o600),
		); err != nil {
			return nil, err
		}
	}
	return all, nil
}
