package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner/choria"
	"muster/server/trust"
)

// eventShutdown is the type of the lifecycle event before a restart.
const eventShutdown = "shutdown"

// choriaWait is how long a simulated Choria server waits for the next request before it connects again.
const choriaWait = time.Minute

const choriaSSLDir = "/etc/choria/ssl"

// unverified is for nodes that know no authority yet.
func unverified(host string) *tls.Config {
	return &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}
}

// A choriaAction is the body of a request.
type choriaAction struct {
	Action string `json:"action"`
	Data   struct {
		Token       string `json:"token"`
		Nonce       string `json:"nonce"`
		Config      string `json:"config"`
		Certificate string `json:"certificate"`
		CA          string `json:"ca"`
		SSLDir      string `json:"ssldir"`
		ServerJWT   string `json:"server_jwt"`
	} `json:"data"`
}

// provision connects as a Choria server, and answers requests until it is to restart.
func (f *fleet) provision(ctx context.Context, n *node) error {
	c, err := f.dial(n.credentials)
	if err != nil {
		return err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	for i, agent := range []string{"discovery", "rpcutil", "choria_util", "choria_provision"} {
		c.subscribe("provisioning.broadcast.agent."+agent, uint64(2+i))
	}
	c.subscribe("provisioning.node."+n.Identity, 1)
	c.publishEvent("startup", n.Identity)
	for event := ""; ; {
		err := errors.Join(c.flush(), c.SetDeadline(time.Now().Add(choriaWait)))
		if err != nil || event == eventShutdown {
			return err
		}
		m, err := c.message()
		if err != nil {
			return err
		}
		if m.slot != 1 {
			continue // a broker may refuse the other subscriptions
		}
		r, version, err := choria.DecodeRequest(m.payload)
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		if version != f.cfg.Choria {
			continue // unanswered, as by a server
		}
		reply := choria.Reply{Request: r.ID, Sender: n.Identity, Agent: r.Agent, Time: time.Now()}
		if reply.Body, event, err = f.answer(n, r.Body); err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		b, err := reply.Encode(version)
		if err != nil {
			return err
		}
		c.publish(r.ReplyTo, "", b)
		if event != "" {
			c.publishEvent(event, n.Identity)
		}
	}
}

// answer carries out an action. It returns the reply and the type of the event to publish, or "".
func (f *fleet) answer(n *node, body []byte) (reply []byte, event string, err error) {
	var a choriaAction
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, "", err
	}
	if a.Data.Token != f.secret && a.Action != "inventory" {
		return nil, "", fmt.Errorf("action %.40q with another secret than the token's", a.Action)
	}
	data := `{"message":"done"}`
	switch key, _ := n.Key.(ed25519.PrivateKey); {
	case a.Action == "jwt":
		data = fmt.Sprintf(`{"jwt":%q,"ecdh_public":"%064d"}`, n.Token, 0)
	case a.Action == "inventory":
		data = `{"agents":["choria_provision","choria_util","discovery","rpcutil"],"facts":` + string(n.Facts) +
			`,"version":"0.30.2","upgradable":false,"classes":[],"collectives":["provisioning"],` +
			`"main_collective":"provisioning","data_plugins":[],"machines":[]}`
	case a.Action == "gencsr" && n.csr != "":
		data = n.csr
	case a.Action == "gen25519" && key != nil:
		data = fmt.Sprintf(`{"public_key":"%x","directory":"/etc/choria","signature":"%x"}`, key.Public(),
			ed25519.Sign(key, []byte(a.Data.Nonce)))
	case a.Action == "configure":
		n.offer, n.configured, event = &wire.Enrolled{Certificate: a.Data.Certificate}, &a, "provisioned"
	case a.Action == "restart" && n.offer != nil:
		event = eventShutdown
	default:
		return nil, "", fmt.Errorf("unexpected action %.40q", a.Action)
	}
	return fmt.Appendf(nil, `{"action":%q,"statuscode":0,"statusmsg":"OK","data":%s}`, a.Action, data), event, nil
}

// publishEvent publishes a lifecycle event.
func (n *conn) publishEvent(kind, identity string) {
	now, id := time.Now().UTC(), wire.NewID()
	n.publish("choria.lifecycle.event."+kind+".provision_mode_server", "", fmt.Appendf(nil,
		`{"specversion":"1.0","id":%q,"source":"io.choria.lifecycle","type":"io.choria.lifecycle.v1.%s","subject":%q,`+
			`"datacontenttype":"application/json","time":%q,"data":{"protocol":"io.choria.lifecycle.v1.%s","id":%q,`+
			`"identity":%q,"component":"provision_mode_server","timestamp":%d,"version":"0.30.2"}}`,
		id, kind, identity, now.Format(time.RFC3339), kind, id, identity, now.Unix()))
}

// checkConfigured returns an error unless a Choria server can use what it was given.
func (f *fleet) checkConfigured(n *node) error {
	data := &n.configured.Data
	var settings map[string]string
	if err := json.Unmarshal([]byte(data.Config), &settings); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if settings["identity"] != n.Identity || settings["plugin.choria.server.provision"] != "false" ||
		data.SSLDir != choriaSSLDir {
		return fmt.Errorf("configuration %.300q, ssldir %q", data.Config, data.SSLDir)
	}
	authorities, err := trust.ParseCertificates(data.CA)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	if f.root != nil && !slices.ContainsFunc(authorities, f.root.Equal) {
		return errors.New("ca lacks the root")
	}
	if key, ok := n.Key.(ed25519.PrivateKey); ok {
		return f.checkServerJWT(data.ServerJWT, n.Identity, fmt.Sprintf("%x", key.Public()))
	}
	if f.root != nil {
		authorities = []*x509.Certificate{f.root}
	}
	_, err = n.verify(x509.VerifyOptions{
		DNSName:   n.Identity,
		Roots:     poolOf(authorities...),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

func (f *fleet) checkServerJWT(text, identity, key string) error {
	parts := append(strings.Split(text, "."), "", "")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	signature, serr := base64.RawURLEncoding.DecodeString(parts[2])
	var claims struct {
		Identity  string `json:"identity"`
		PublicKey string `json:"public_key"`
	}
	if err := errors.Join(err, serr, json.Unmarshal(payload, &claims)); err != nil {
		return fmt.Errorf("server JWT: %w", err)
	}
	if claims.Identity != identity || claims.PublicKey != key {
		return fmt.Errorf("server JWT is for %q with key %q", claims.Identity, claims.PublicKey)
	}
	if f.issuer != nil && !ed25519.Verify(f.issuer, []byte(parts[0]+"."+parts[1]), signature) {
		return errors.New("server JWT is not signed by the issuer")
	}
	return nil
}
