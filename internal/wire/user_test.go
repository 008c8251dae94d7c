package wire_test

import (
	"testing"

	"muster/internal/wire"
)

func TestTheUserOfAConnectionSaysItsToken(t *testing.T) {
	t.Parallel()
	for user, want := range map[string][2]string{
		wire.UserWithToken("provisioning", "3f2a"): {"provisioning", "3f2a"},
		wire.UserWithToken("UABC", ""):             {"UABC", ""},
		"UABC":                                     {"UABC", ""}, // of an embedded broker
		"web1.example.net":                         {"web1.example.net", ""},
		"":                                         {"", ""},
	} {
		if name, token := wire.SplitUser(user); name != want[0] || token != want[1] {
			t.Errorf("SplitUser(%q) = %q, %q, want %q", user, name, token, want)
		}
	}
}
