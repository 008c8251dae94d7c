package attacks_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
)

// claims of a valid token.
const claims = `"cht":"attacked","chs":false,"chu":"localhost:4222","chpd":true,"purpose":"choria_provisioning"`

// compact makes a token of any header and claims. A nil signature function leaves the signature empty.
func compact(header, body string, sign func(input []byte) []byte) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(body))
	var signature []byte
	if sign != nil {
		signature = sign([]byte(input))
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func signedBy(key crypto.Signer) func([]byte) []byte {
	return func(input []byte) []byte {
		signature, err := key.Sign(nil, input, crypto.Hash(0))
		if err != nil {
			panic(err)
		}
		return signature
	}
}

// TestForgedTokens presents tokens that no signer has signed, or not like this: to the broker in CONNECT, and to the
// provisioner in a request on the connection of a genuine token. Both refuse each.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	ours := signedBy(tg.signer)
	_, stranger, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs := signedBy(stranger)
	withHMAC := func(secret string) func([]byte) []byte {
		return func(input []byte) []byte {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(input)
			return mac.Sum(nil)
		}
	}
	const alg = `{"alg":"EdDSA","typ":"JWT"}`
	header := func(member string) string { return `{"alg":"EdDSA","typ":"JWT",` + member + `}` }
	body := func(more string) string { return "{" + claims + more + "}" }
	jwk := fmt.Sprintf(`"jwk":{"kty":"OKP","crv":"Ed25519","x":%q}`,
		base64.RawURLEncoding.EncodeToString(stranger.Public().(ed25519.PublicKey)))
	genuine := compact(alg, body(""), ours)
	ago, ahead := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	const invalid = wire.CodeTokenInvalid
	for name, tt := range map[string]struct {
		text string
		want wire.Code
	}{
		"no algorithm, no signature":   {compact(`{"alg":"none"}`, body(""), nil), invalid},
		"none in another case":         {compact(`{"alg":"nOnE"}`, body(""), nil), invalid},
		"an empty signature":           {compact(alg, body(""), nil), invalid},
		"HMAC with the public key":     {compact(`{"alg":"HS256"}`, body(""), withHMAC(tg.read("signer.pem"))), invalid},
		"HMAC called EdDSA":            {compact(alg, body(""), withHMAC(tg.read("signer.pem"))), invalid},
		"a stranger's key":             {compact(alg, body(""), theirs), invalid},
		"a key that it brings":         {compact(header(jwk), body(""), theirs), invalid},
		"a key at an address":          {compact(header(`"jku":"https://evil.example.net/"`), body(""), theirs), invalid},
		"a certificate at an address":  {compact(header(`"x5u":"https://evil.example.net/"`), body(""), theirs), invalid},
		"a certificate that it brings": {compact(header(`"x5c":["MIIB"]`), body(""), theirs), invalid},
		"a critical extension":         {compact(header(`"crit":["exp"],"exp":1`), body(""), ours), invalid},
		"another payload encoding":     {compact(header(`"b64":false`), body(""), ours), invalid},
		"a compressed payload":         {compact(header(`"zip":"DEF"`), body(""), ours), invalid},
		"a path as key id":             {compact(header(`"kid":"../../../../dev/null"`), body(""), theirs), invalid},
		"two algorithms": {compact(`{"alg":"none","alg":"EdDSA"}`, body(""), ours),
			invalid},
		"two sets of brokers":     {compact(alg, body(`,"chu":"evil.example.net:4222"`), ours), invalid},
		"a claim in another case": {compact(alg, body(`,"EXP":1`), ours), invalid},
		"claims exchanged": {strings.Replace(genuine, strings.Split(genuine, ".")[1],
			base64.RawURLEncoding.EncodeToString([]byte(body(`,"ou":"evil"`))), 1), invalid},
		"a header exchanged": {strings.Replace(genuine, strings.Split(genuine, ".")[0],
			base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"EdDSA"}`)), 1), invalid},
		"a signature cut short":   {genuine[:len(genuine)-4], invalid},
		"a fourth part":           {genuine + ".e30", invalid},
		"a token of another kind": {compact(alg, `{"cht":"attacked","purpose":"choria_client"}`, ours), invalid},
		"an operator's token": {compact(alg, fmt.Sprintf(`{"sub":"anna","aud":"muster","exp":%d}`, ahead), ours),
			invalid},
		"one that has expired":      {compact(alg, body(fmt.Sprintf(`,"exp":%d`, ago)), ours), wire.CodeTokenExpired},
		"an end that is a text":     {compact(alg, body(`,"exp":"9999999999"`), ours), invalid},
		"an end beyond all years":   {compact(alg, body(`,"exp":1e300`), ours), invalid},
		"one that is not yet valid": {compact(alg, body(fmt.Sprintf(`,"nbf":%d`, ahead)), ours), wire.CodeTokenNotYetValid},
		"a limit that is unknown":   {compact(alg, body(`,"extensions":{"muster":{"weekdays":[1]}}`), ours), wire.CodeTokenUnsupported},
		"uses without an id":        {compact(alg, body(`,"extensions":{"muster":{"uses":1}}`), ours), invalid},
		"uses without iat":          {compact(alg, body(`,"jti":"a","extensions":{"muster":{"uses":1}}`), ours), invalid},
		"no uses":                   {compact(alg, body(`,"jti":"a","extensions":{"muster":{"uses":0}}`), ours), invalid},
		"another site's": {compact(alg, body(`,"extensions":{"muster":{"site":"ams1"}}`), ours),
			wire.CodeTokenSite},
		"nothing":      {"", invalid},
		"only dots":    {"..", invalid},
		"a thousand [": {compact(alg, body(`,"x":`+strings.Repeat("[", 1000)), ours), invalid},
	} {
		t.Run(name, func(t *testing.T) {
			if nc, err := simnode.Dial("nats://"+tg.broker, tt.text); err == nil {
				nc.Close()
				// A site is judged with the request, since the connection may lead to several.
				if tt.want != wire.CodeTokenSite {
					t.Error("the broker admits it")
				}
			}
			n := tg.node("web1.example.net", tt.text)
			reply := tg.ask(tg.dial(genuine), n.Request())
			if reply.Refusal == nil || reply.Refusal.Code != tt.want {
				t.Errorf("reply %+v, refusal %+v, want %s", reply, reply.Refusal, tt.want)
			}
		})
	}
	if found := tg.identities(); len(found) > 0 {
		t.Errorf("on record: %v", found)
	}
}

// TestStretchedTokens uses genuine tokens for more than they allow.
func TestStretchedTokens(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	limited := func(limits string, edit func(*jwt.Claims)) string {
		return tg.token(func(c *jwt.Claims) {
			c.JTI, c.IssuedAt = jwt.NewJTI(), time.Now().Add(-time.Minute)
			c.Extensions = map[string]json.RawMessage{"muster": json.RawMessage(limits)}
			if edit != nil {
				edit(c)
			}
		})
	}
	code := func(identity, token string) wire.Code {
		t.Helper()
		reply := tg.ask(tg.dial(token), tg.node(identity, token).Request())
		if reply.Refusal == nil {
			return ""
		}
		return reply.Refusal.Code
	}
	once := limited(`{"uses":1}`, nil)
	if got := code("once1.example.net", once); got != "" {
		t.Errorf("the only use: %s", got)
	}
	if got := code("once2.example.net", once); got != wire.CodeTokenUsedUp {
		t.Errorf("a second use: %q", got)
	}
	// A refused request costs no use.
	spared := limited(`{"uses":1}`, nil)
	bad := tg.node("spared.example.net", spared)
	bad.CSR = []byte("no request")
	if reply := tg.ask(tg.dial(spared), bad.Request()); reply.Refusal == nil {
		t.Error("a bad request is taken")
	}
	if got := code("spared.example.net", spared); got != "" {
		t.Errorf("after a bad request: %s", got)
	}
	webs := limited(`{"identities":["web*.example.net"]}`, nil)
	if got := code("db1.example.net", webs); got != wire.CodeTokenIdentity {
		t.Errorf("outside of its names: %q", got)
	}
	tomorrow := func(c *jwt.Claims) { c.IssuedAt = time.Now().Add(24 * time.Hour) }
	if nc, err := simnode.Dial("nats://"+tg.broker, limited(`{"uses":1}`, tomorrow)); err == nil {
		nc.Close()
		t.Error("the broker admits a limited token that is issued tomorrow")
	}
	// A name that is taken stays with its key, also for a token that names it, but is older than the certificate.
	tg.provision("taken.example.net")
	old := limited(`{"uses":1,"identities":["taken.example.net"]}`, nil)
	if got := code("taken.example.net", old); got != wire.CodeApprovalPending {
		t.Errorf("a name of another key: %q", got)
	}
	revoked := tg.token(func(c *jwt.Claims) { c.JTI = "to be revoked" })
	nc := tg.dial(revoked)
	tg.write("revoked.jwt", revoked)
	tg.must("token", "revoke", "prov/revoked.jwt", "--why", "stolen")
	if reply, err := simnode.Enroll(within(t), nc, tg.node("rev.example.net", revoked).Request()); err == nil &&
		(reply.Refusal == nil || reply.Refusal.Code != wire.CodeTokenRevoked) {
		t.Errorf("a revoked token on a connection from before: %+v", reply)
	}
	if nc, err := simnode.Dial("nats://"+tg.broker, revoked); err == nil {
		nc.Close()
		t.Error("the broker admits a revoked token")
	}
}
