package provisioner_test

import (
	"fmt"
	"strings"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// filler returns what writes a grant of so many bytes, another one each time.
func filler(f *testbed.Fleet) func(bytes int) error {
	n := 0
	return func(bytes int) error {
		n++
		return f.Daemon().Store().PutGrant(f.Context(), &provisioner.Grant{
			ID: wire.NewID(), Identity: wire.Identity(fmt.Sprintf("filler%d.example.net", n)), Why: strings.Repeat("x", bytes), ExpiresAt: f.Clock.Now(),
		}, provisioner.AnyRevision)
	}
}
