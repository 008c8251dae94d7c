package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/provisioner/store"
)

// watermark returns one with a stream of claims of that many messages.
func watermark(messages uint64) *store.Watermark {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &store.Watermark{
		Installation: "i", At: at,
		Streams: map[string]store.Mark{"MUSTER_CLAIMS": {Created: at, First: min(messages, 1), Last: messages,
			Messages: messages, Subjects: min(messages, 3)}},
	}
}

// TestWatermarkSurvivesATornWrite cuts the newest slot at several places: the previous one is read.
func TestWatermarkSurvivesATornWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "watermark")
	f, found, err := store.OpenWatermark(path)
	if err != nil || found != nil {
		t.Fatalf("a new file: %v, %v", found, err)
	}
	for n := range uint64(3) {
		if err := f.Write(watermark(n + 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const slot, newest = 4096, 1 // the third write went to the second slot
	for name, tt := range map[string]struct {
		damage func(b []byte)
		want   *store.Watermark
	}{
		"whole":             {func([]byte) {}, watermark(3)},
		"nothing of it":     {func(b []byte) { clear(b[newest*slot:]) }, watermark(2)},
		"its beginning":     {func(b []byte) { clear(b[newest*slot+20:]) }, watermark(2)},
		"a byte is another": {func(b []byte) { b[newest*slot+80] ^= 1 }, watermark(2)},
		"both are damaged":  {func(b []byte) { b[40] ^= 1; b[newest*slot+40] ^= 1 }, nil},
		"a byte of its sum": {func(b []byte) { b[newest*slot+12] = 0xff }, watermark(2)},
	} {
		b := append([]byte(nil), whole...)
		tt.damage(b)
		path := filepath.Join(t.TempDir(), "watermark")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, got, err := store.OpenWatermark(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if err := errors.Join(f.Write(watermark(9)), f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, got, err := store.OpenWatermark(path); err != nil || !cmp.Equal(got, watermark(9)) {
			t.Errorf("%s: written since: %+v, %v", name, got, err)
		}
	}
}

// TestWatermarkReportsMissingData compares streams at a start with an older watermark.
func TestWatermarkReportsMissingData(t *testing.T) {
	t.Parallel()
	was := watermark(100)
	mark := was.Streams["MUSTER_CLAIMS"]
	nodes := mark
	was.Streams["MUSTER_NODES"] = nodes
	for name, tt := range map[string]struct {
		edit    func(found map[string]store.Mark)
		damaged bool
	}{
		"as before": {func(map[string]store.Mark) {}, false},
		"more": {func(m map[string]store.Mark) {
			mark := mark
			mark.Last, mark.Messages = 120, 120
			m["MUSTER_CLAIMS"] = mark
		}, false},
		"older revisions go": {func(m map[string]store.Mark) {
			nodes := nodes
			nodes.First, nodes.Last = 21, 120
			m["MUSTER_NODES"] = nodes
		}, false},
		"the end is gone": {func(m map[string]store.Mark) {
			mark := mark
			mark.Last, mark.Messages = 99, 99
			m["MUSTER_CLAIMS"] = mark
		}, true},
		"a hole inside": {func(m map[string]store.Mark) {
			nodes := nodes
			nodes.Messages = 90
			m["MUSTER_NODES"] = nodes
		}, true},
		"a hole, and more": {func(m map[string]store.Mark) {
			mark := mark
			mark.Last, mark.Messages = 130, 110
			m["MUSTER_CLAIMS"] = mark
		}, true},
		"fewer keys": {func(m map[string]store.Mark) { nodes := nodes; nodes.Subjects = 2; m["MUSTER_NODES"] = nodes },
			true},
		"the first is gone": {func(m map[string]store.Mark) {
			nodes := nodes
			nodes.First, nodes.Messages = 5, 96
			m["MUSTER_NODES"] = nodes
		}, true},
		"a stream is gone": {func(m map[string]store.Mark) { delete(m, "MUSTER_NODES") }, true},
		"a stream, made anew": {func(m map[string]store.Mark) {
			nodes := nodes
			nodes.Created = nodes.Created.Add(time.Hour)
			m["MUSTER_NODES"] = nodes
		}, true},
	} {
		found := map[string]store.Mark{"MUSTER_CLAIMS": mark, "MUSTER_NODES": nodes}
		tt.edit(found)
		if err := was.Missing(found); errors.Is(err, store.ErrDamaged) != tt.damaged || (err != nil) != tt.damaged {
			t.Errorf("%s: %v, want damage %v", name, err, tt.damaged)
		}
	}
}
