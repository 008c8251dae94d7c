package provisioner

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/wire"
)

func TestAlternatingBootInstancesAreClones(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type word struct {
		boot string
		at   time.Duration
	}
	const later = cloneGrace + time.Second
	tests := map[string]struct {
		said []word
		want string // the other machine, at the last message
	}{
		"one machine": {[]word{{"a", 0}, {"a", later}, {"a", 2 * later}}, ""},
		"a reboot":    {[]word{{"a", 0}, {"b", later}, {"b", 2 * later}}, ""},
		"many reboots": {[]word{{"a", 0}, {"b", later}, {"c", 2 * later}, {"d", 3 * later},
			{"e", 4 * later}, {"e", 5 * later}}, ""},
		"a reboot, and a word from before": {[]word{{"a", 0}, {"b", later}, {"a", later + cloneGrace}}, ""},
		"a word from before, and after it": {[]word{{"a", 0}, {"b", later}, {"a", later + cloneGrace},
			{"b", 3 * later}}, ""},
		"two machines":                {[]word{{"a", 0}, {"b", later}, {"a", 2*later + 1}}, "b"},
		"the later one does not tell": {[]word{{"a", 0}, {"b", later}, {"a", later}, {"b", 9 * later}}, ""},
		"three machines":              {[]word{{"a", 0}, {"b", later}, {"c", 2 * later}, {"b", 4 * later}}, "c"},
		"no name":                     {[]word{{"", 0}, {"b", later}, {"", 9 * later}}, ""},
		"too long a name": {[]word{{string(make([]byte, 65)), 0}, {"b", later},
			{string(make([]byte, 65)), 9 * later}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b boots
			for i, w := range tt.said {
				cloned := b.observe("web1.example.net", Machine{Boot: w.boot}, start.Add(w.at))
				want, got := "", ""
				if i == len(tt.said)-1 {
					want = tt.want
				}
				if cloned != nil {
					got = cloned.Machines[0].Boot
					for _, m := range cloned.Machines {
						if m.First.Before(start) || m.Last.After(start.Add(w.at)) || m.Last.Before(m.First) {
							t.Errorf("seen from %v to %v", m.First, m.Last)
						}
					}
				}
				if got != want {
					t.Errorf("word %d, of %q: %q, want %q", i, w.boot, got, want)
				}
			}
		})
	}
}

func TestBootsAreBounded(t *testing.T) {
	t.Parallel()
	var b boots
	now := time.Now()
	for i := range 100 {
		b.observe("web1.example.net", Machine{Boot: fmt.Sprint(i)}, now)
	}
	if n := len(b.seen["web1.example.net"]); n != maxBoots {
		t.Errorf("%d boot instances of one identity, want %d", n, maxBoots)
	}
	for i := range maxTracked + 100 {
		b.observe(wire.Identity(fmt.Sprintf("node%d.example.net", i)), Machine{Boot: "a"}, now)
	}
	if n := len(b.seen); n != maxTracked {
		t.Errorf("%d identities, want %d", n, maxTracked)
	}
}
