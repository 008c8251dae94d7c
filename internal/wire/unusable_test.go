package wire_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"muster/internal/wire"
)

func TestUnusableOfferRoundTrip(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ why, want string }{
		"a line":            {"provision is true", "provision is true"},
		"values":            {`brokers: "nats://a\"b", and "cut sho`, `brokers: "…", and "…"`},
		"lines and escapes": {"a\nb\x1b[2Jc\u202ed: e", "a b [2Jc d: e"},
		"no text":           {"a\xffb", "ab"},
		"nothing":           {"", ""},
		"a lot":             {strings.Repeat("ä", 1000), strings.Repeat("ä", wire.MaxUnusableBytes/2)},
		"a lot, and odd":    {"a" + strings.Repeat("ä", 1000), "a" + strings.Repeat("ä", wire.MaxUnusableBytes/2-1)},
	} {
		a := wire.Applied{Digest: wire.Unusable("9f86", tt.why)}
		digest, why, is := a.Unusable()
		if digest != "9f86" || why != tt.want || !is || !utf8.ValidString(a.Digest) {
			t.Errorf("%s: %q is %q about %q, %v; want %q", name, a.Digest, why, digest, is, tt.want)
		}
	}
	a := wire.Applied{Digest: "unusable:9f86:a\x1bb" + strings.Repeat("c", 1<<10)} // from a hostile node
	if _, why, _ := a.Unusable(); len(why) > wire.MaxUnusableBytes || strings.Contains(why, "\x1b") {
		t.Errorf("%q", why)
	}
	if _, _, is := (&wire.Applied{Digest: "9f86"}).Unusable(); is {
		t.Error("a confirmation passes for a complaint")
	}
}
