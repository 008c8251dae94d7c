package reserved_test

import (
	"log/slog"
	"testing"
	"time"

	"muster/internal/reserved"
)

func TestEverySpellingOfAReservedAddressIsReserved(t *testing.T) {
	t.Parallel()
	r, err := reserved.New([]string{"*.privileged.example.net"}, nil, slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r.Add("the API", "api.example.net", "::ffff:192.0.2.7")
	r.SetPeers([]string{"prov2.example.net"}, []string{"tls://nats1.example.net:4222"})
	for _, host := range []string{"api.example.net", "192.0.2.7", "::ffff:192.0.2.7", "prov2.example.net",
		"nats1.example.net", "a.privileged.example.net", "127.0.0.1"} {
		if r.Check(host, nil) == nil {
			t.Errorf("%s is free", host)
		}
	}
	for _, host := range []string{"web1.example.net", "192.0.2.8", "privileged.example.net"} {
		if err := r.Check(host, nil); err != nil {
			t.Error(err)
		}
	}
}
