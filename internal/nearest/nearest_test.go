package nearest_test

import (
	"testing"

	"muster/internal/nearest"
)

func TestWord(t *testing.T) {
	t.Parallel()
	words := []string{"brokers", "provision", "log_level"}
	for word, want := range map[string]string{
		"brokerz": "brokers", "provison": "provision", "loglevel": "log_level", "brokers": "brokers",
		"plugin": "", "": "", "brxxxrs": "",
	} {
		if got := nearest.Word(word, words, 3); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
