package natsapi_test

import (
	"context"
	"errors"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/natsapi"
)

// certificates answers by the name in the request.
type certificates struct{}

func (certificates) Handle(_ context.Context, r *wire.CertificateRequest, source provisioner.Source,
) (*wire.ServiceCertificate, error) {
	switch r.Name {
	case "refused":
		return nil, &provisioner.Refusal{Code: wire.CodeNameTaken, Err: errors.New("db1.example.net has it")}
	case "broken":
		panic("broken")
	}
	return &wire.ServiceCertificate{Name: r.Name, Serial: string(source.Node) + "."}, nil
}

// TestRequestsForServiceCertificates passes them on with their sender, and the answers back.
func TestRequestsForServiceCertificates(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn, err := f.Daemon().Connect("second provisioner")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	signed := ""
	service := natsapi.New(natsapi.Config{Conn: conn, Provisioner: f.Provisioner(nil), Installation: "x", Prefix: "test.",
		Workers: 1, Certificates: certificates{}, Sign: func(r *wire.Reply, identity, _ string, _ []byte) error {
			signed += identity + " "
			return nil
		}})
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- service.Run(ctx, func() { close(ready) }) }()
	<-ready
	for name, want := range map[string]wire.Code{"haproxy": "", "refused": wire.CodeDenied, "broken": wire.CodeUnavailable,
		"../haproxy": wire.CodeBadRequest} {
		b, err := wire.Encode(&wire.CertificateRequest{ID: wire.NewID(), Identity: "web1.example.net", Name: name,
			Verb: wire.CertificateRevoke, Source: "file"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := conn.RequestWithContext(f.Context(), "test."+wire.SubjectCertificate, b)
		if err != nil {
			t.Fatal(err)
		}
		r, err := wire.DecodeReply(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && (r.Certificate == nil || r.Certificate.Name != name || r.Certificate.Serial != ".") ||
			want != "" && (r.Refusal == nil || r.Refusal.Code != want) {
			t.Errorf("%s: %+v, want %q", name, r, want)
		}
	}
	stop()
	if err := <-ended; err != nil || signed != "web1.example.net " {
		t.Errorf("signed %q, %v", signed, err)
	}
	f.Check()
}
