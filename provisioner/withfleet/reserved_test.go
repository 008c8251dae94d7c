package provisioner_test

import (
	"testing"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

func TestNoRequestGetsAReservedName(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		c.Reserved = []string{"*.privileged.example.net"}
	}})
	urls := func(c *jwt.Claims) { c.Brokers = "nats://nats.example.net:4222," + c.Brokers }
	upper := func(c *jwt.Claims) { c.Brokers = "NATS://Nats.Example.NET.:4222/," + c.Brokers }
	for name, tt := range map[string]struct {
		identity string
		token    func(*jwt.Claims)
		want     wire.Code // empty: admitted
	}{
		"the provisioner":              {"broker.fleet.test", nil, wire.CodeIdentityReserved},
		"the broker":                   {"localhost", nil, wire.CodeIdentityReserved},
		"a broker in its token":        {"nats.example.net", urls, wire.CodeIdentityReserved},
		"a broker spelled otherwise":   {"nats.example.net", upper, wire.CodeIdentityReserved},
		"a pattern of the operator's":  {"db.privileged.example.net", nil, wire.CodeIdentityReserved},
		"below a broker's name":        {"x.broker.fleet.test", nil, ""},
		"above a broker's name":        {"fleet.test", nil, ""},
		"beside a broker in its token": {"nats2.example.net", urls, ""},
		"the domain of the pattern":    {"privileged.example.net", nil, ""},
		"a broker in another token":    {"nats.example.net", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := simnode.New(tt.identity, f.Token(tt.token))
			if err != nil {
				t.Fatal(err)
			}
			reply := f.Ask(n)
			if got := refusalCode(reply); got != tt.want {
				t.Errorf("refused as %q, want %q", got, tt.want)
			}
		})
	}
	f.Check()
}
