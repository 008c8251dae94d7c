package services_test

import (
	"context"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/operate"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

func TestServiceCertificatesGoWithTheirNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	for what, end := range map[string]func(f *testbed.Fleet, identity string){
		"revoked": func(f *testbed.Fleet, identity string) { f.Revoke(identity) },
		"retired": func(f *testbed.Fleet, identity string) { f.Retire(identity) },
		"handed-over": func(f *testbed.Fleet, identity string) {
			if _, err := f.Daemon().Orders().Nodes.Grant(f.Context(), wire.Identity(identity), operate.GrantOrder{},
				cause); err != nil {
				t.Fatal(err)
			}
			f.Enroll(f.Node(identity))
		},
	} {
		identity := what + ".example.net"
		n := connected(t, f, identity)
		former, key := n.granted(n.request("https", newKey(t), identity)), newKey(t)
		newest, other := n.granted(n.request("https", key, identity)), n.granted(n.request("ldap", newKey(t), identity))
		f.Clock.Advance(time.Minute) // owners differ by the second
		end(f, identity)
		wantRevoked(f, former.Serial, newest.Serial, other.Serial)
		if l := n.listed("https"); l.State != services.StateRevoked {
			t.Errorf("%s: listed as %+v, want it as revoked", what, l)
		}
	}
	f.Check()
}

// TestAKilledProvisionerLeavesNoServiceCertificate ends between the entry about the node and that about its
// certificates: the certificate was written while the node was revoked, and the writer died.
func TestAKilledProvisionerLeavesNoServiceCertificate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	n := connected(t, f, web1)
	dying, die := context.WithCancel(f.Context())
	var serial string
	s := n.another(func(st services.Store) *unsure {
		return &unsure{st, func(ctx context.Context, c *services.Certificate, after trust.Revision,
		) (trust.Revision, error) {
			f.Revoke(web1)
			if _, err := st.PutCertificate(context.WithoutCancel(ctx), c, after); err != nil {
				t.Error(err)
			}
			serial = c.Current.Serial
			die()
			return 0, errKilled
		}}
	})
	if _, err := handle(dying, s, n.request("https", newKey(t), web1), web1); err == nil {
		t.Fatal("a revoked node got a certificate")
	}
	f.Stop()
	f.Start()
	wantRevoked(f, serial)
	f.Clock.Advance(time.Minute)
	f.Check()
}
