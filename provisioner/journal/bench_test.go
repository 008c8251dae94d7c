package journal_test

import (
	"path/filepath"
	"testing"

	"muster/provisioner"
	"muster/provisioner/journal"
)

// BenchmarkAppend is what an entry costs, alone and with others at the same time: a sync most
// of all, so it is of the disk that TMPDIR is on.
func BenchmarkAppend(b *testing.B) {
	j, err := journal.Open(filepath.Join(b.TempDir(), "journal"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	takeover := &provisioner.Takeover{Identity: "web1.example.net", Key: "k", Reason: provisioner.ReasonGrant, At: noon}
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if err := j.AppendTakeover(takeover); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("many", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := j.AppendTakeover(takeover); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
