package demo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// receiverEnds bounds how long a delivery may take to be over at the end; chosen.
const receiverEnds = time.Second

// A receiver is an endpoint for a webhook: it appends each event that it is sent to
// a file, as a line.
type receiver struct {
	listener net.Listener
	file     *os.File
}

// newReceiver listens, and writes what the provisioner needs to know of it into
// home: the secret that signs events, and the certificate that it shows.
func newReceiver(home, file string) (*receiver, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the webhook's receiver: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook receiver of muster demo"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(stays),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the webhook's receiver: %w", err)
	}
	if err := os.WriteFile(filepath.Join(home, "hooks-ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	if err := os.WriteFile(filepath.Join(home, "pager.secret"), []byte("whsec_"+base64.StdEncoding.EncodeToString(secret)+"\n"), 0o600); err != nil {
		return nil, err
	}
	r := &receiver{}
	if r.file, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	r.listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
	})
	return r, err
}

// config is what provisioner.yaml says of it.
func (r *receiver) config() string {
	return fmt.Sprintf("\nwebhooks:\n  - name: pager\n    url: https://%s/\n    secret: pager.secret\n    ca: hooks-ca.pem\n", r.listener.Addr())
}

// run takes events until ctx is done.
func (r *receiver) run(ctx context.Context) error {
	s := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), receiverEnds)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close() // what was not taken is delivered again, if somebody starts it all again
		}
	})
	err := s.Serve(r.listener)
	if !stop() {
		<-ended
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return r.file.Close()
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	b, err := io.ReadAll(http.MaxBytesReader(w, request.Body, 1<<20))
	if err == nil {
		_, err = r.file.Write(append(b, '\n')) // one write is one line, whoever else writes
	}
	if err != nil {
		http.Error(w, "event not kept", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
