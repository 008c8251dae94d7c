package seal_test

import (
	"strings"
	"testing"

	"muster/internal/seal"
)

// The benchmarks carry 5 KB each way, as a node with ordinary facts and a small
// configuration does.

func BenchmarkNodeSeal(b *testing.B) {
	k, plaintext := testKey(b, "a").Public(), []byte(strings.Repeat("x", 5000))
	for b.Loop() {
		if _, _, err := k.Seal(seal.PurposeEnroll, plaintext, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProvisionerOpen(b *testing.B) {
	o := testOpener(b, "a")
	s, _ := mustSeal(b, "a", seal.PurposeEnroll, strings.Repeat("x", 5000), "")
	for b.Loop() {
		if _, _, err := o.Open(seal.PurposeEnroll, s, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProvisionerReply(b *testing.B) {
	s, _ := mustSeal(b, "a", seal.PurposeEnroll, "", "")
	_, sealer, err := testOpener(b, "a").Open(seal.PurposeEnroll, s, nil)
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
	s, opener := mustSeal(b, "a", seal.PurposeEnroll, "", "")
	_, sealer, err := testOpener(b, "a").Open(seal.PurposeEnroll, s, nil)
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

func BenchmarkProvisionerOpenRequest(b *testing.B) {
	_, e, _ := sendRequest(b, request())
	o := testOpener(b, "a")
	for b.Loop() {
		if _, _, err := o.OpenRequest(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProvisionerOpenToken(b *testing.B) {
	o, s := testOpener(b, "a"), sealedToken(b, "a", secretToken)
	for b.Loop() {
		if _, _, err := o.OpenToken(s); err != nil {
			b.Fatal(err)
		}
	}
}
