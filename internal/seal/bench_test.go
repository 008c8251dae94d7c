package seal_test

import (
	"strings"
	"testing"
	"time"

	"muster/internal/seal"
)

// The benchmarks carry 5 KB each way, as a node with ordinary facts and a small
// configuration does.

func BenchmarkNodeSeal(b *testing.B) {
	k, plaintext := testSession(b, "a"), []byte(strings.Repeat("x", 5000))
	for b.Loop() {
		if _, _, err := k.Seal(seal.PurposeEnroll, plaintext); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProvisionerOpen(b *testing.B) {
	o := testOpener(b, "a")
	s, _ := mustSeal(b, "a", seal.PurposeEnroll, strings.Repeat("x", 5000))
	for b.Loop() {
		if _, _, err := o.Open(seal.PurposeEnroll, s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProvisionerReply(b *testing.B) {
	s, _ := mustSeal(b, "a", seal.PurposeEnroll, "")
	_, sealer, err := testOpener(b, "a").Open(seal.PurposeEnroll, s)
	if err != nil {
		b.Fatal(err)
	}
	plaintext := []byte(strings.Repeat("x", 5000))
	for b.Loop() {
		if _, err := sealer.Seal(plaintext); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNodeReply(b *testing.B) {
	s, opener := mustSeal(b, "a", seal.PurposeEnroll, "")
	_, sealer, err := testOpener(b, "a").Open(seal.PurposeEnroll, s)
	if err != nil {
		b.Fatal(err)
	}
	frame, err := sealer.Seal([]byte(strings.Repeat("x", 5000)))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := opener.Open(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNodeSession(b *testing.B) {
	k := testKey(b, "a").Public()
	for b.Loop() {
		if _, err := seal.NewSession(k, secretToken); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProvisionerOpenRequest opens requests of a session that the provisioner
// remembers, and of one that it does not.
func BenchmarkProvisionerOpenRequest(b *testing.B) {
	_, e, _ := sendRequest(b, request())
	o := testOpener(b, "a")
	for name, forget := range map[string]bool{"remembered": false, "new": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if forget {
					o.Remember(time.Now, 1)
				}
				if _, _, err := o.OpenRequest(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkProvisionerOpenToken(b *testing.B) {
	o, p := testOpener(b, "a"), presented(b, testSession(b, "a"))
	for b.Loop() {
		o.Remember(time.Now, 1)
		if _, err := o.OpenToken(p); err != nil {
			b.Fatal(err)
		}
	}
}
