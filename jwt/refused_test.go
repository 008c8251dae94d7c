package jwt_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// Each row changes a good token by one edit that has fooled a verifier. The first rows are accepted.
func TestRefusedConstructions(t *testing.T) {
	t.Parallel()
	ed, foreign, p384 := edKey("signer"), edKey("foreign"), mustEC(elliptic.P384())
	v := verifier(t,
		jwt.Signer{Name: "ed", Key: ed.Public()},
		jwt.Signer{Name: "rsa", Key: rsaKey().Public()},
		jwt.Signer{Name: "ec", Key: ecKey().Public()},
		jwt.Signer{Name: "ec384", Key: p384.Public()},
	)
	der, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	if err != nil {
		t.Fatal(err)
	}
	rsaPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	header := func(extra string) string { return `{"alg":"EdDSA","typ":"JWT",` + extra + `}` }
	body := func(extra string) string { return strings.TrimSuffix(goodBody, "}") + "," + extra + "}" }
	good := craft(edHeader, goodBody, withEd(ed))
	b64 := base64.RawURLEncoding.EncodeToString
	jwk := fmt.Sprintf(`"jwk":{"kty":"OKP","crv":"Ed25519","x":%q}`, b64(foreign.Public().(ed25519.PublicKey)))

	tests := map[string]struct {
		text string
		want error // nil: accepted
	}{
		"good":                       {good, nil},
		"good, RS256":                {craft(`{"alg":"RS256"}`, goodBody, withRSA(rsaKey(), crypto.SHA256)), nil},
		"good, RS384":                {craft(`{"alg":"RS384"}`, goodBody, withRSA(rsaKey(), crypto.SHA384)), nil},
		"good, RS512":                {craft(`{"alg":"RS512"}`, goodBody, withRSA(rsaKey(), crypto.SHA512)), nil},
		"good, ES256":                {craft(`{"alg":"ES256"}`, goodBody, withEC(ecKey())), nil},
		"good, ES384":                {craft(`{"alg":"ES384"}`, goodBody, withEC(p384)), nil},
		"good, unknown claims":       {craft(edHeader, body(`"collectives":["a"],"x":{"y":1}`), withEd(ed)), nil},
		"good, null extensions":      {craft(edHeader, body(`"extensions":null`), withEd(ed)), nil},
		"good, kid and other header": {craft(header(`"kid":"../../etc/passwd","cty":"x"`), goodBody, withEd(ed)), nil},
		"good, blanks in the JSON":   {craft(" { \"alg\" : \"EdDSA\" } ", goodBody+"\n", withEd(ed)), nil},

		"alg none, no signature":       {craft(`{"alg":"none"}`, goodBody, unsigned), jwt.ErrUnsupported},
		"alg none, some signature":     {craft(`{"alg":"none"}`, goodBody, withEd(ed)), jwt.ErrUnsupported},
		"alg None in another case":     {craft(`{"alg":"nOnE"}`, goodBody, unsigned), jwt.ErrUnsupported},
		"alg empty":                    {craft(`{"alg":""}`, goodBody, unsigned), jwt.ErrUnsupported},
		"alg absent":                   {craft(`{"typ":"JWT"}`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"alg null":                     {craft(`{"alg":null}`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"alg a list":                   {craft(`{"alg":["EdDSA"]}`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"alg in another case":          {craft(`{"alg":"eddsa"}`, goodBody, withEd(ed)), jwt.ErrUnsupported},
		"alg spelled as member ALG":    {craft(`{"ALG":"EdDSA"}`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"HMAC with the PEM of our key": {craft(`{"alg":"HS256"}`, goodBody, withHMAC(rsaPEM)), jwt.ErrUnsupported},
		"HMAC with the DER of our key": {craft(`{"alg":"HS256"}`, goodBody, withHMAC(der)), jwt.ErrUnsupported},
		"HMAC under the name of RS256": {craft(`{"alg":"RS256"}`, goodBody, withHMAC(rsaPEM)), jwt.ErrSignature},
		"PS256 with our RSA key":       {craft(`{"alg":"PS256"}`, goodBody, withPSS(rsaKey())), jwt.ErrUnsupported},
		"PSS under the name of RS256":  {craft(`{"alg":"RS256"}`, goodBody, withPSS(rsaKey())), jwt.ErrSignature},
		"RS256 signature called RS512": {craft(`{"alg":"RS512"}`, goodBody, withRSA(rsaKey(), crypto.SHA256)),
			jwt.ErrSignature},
		"ES256 signature called EdDSA": {craft(`{"alg":"EdDSA"}`, goodBody, withEC(ecKey())), jwt.ErrSignature},
		"EdDSA signature called ES256": {craft(`{"alg":"ES256"}`, goodBody, withEd(ed)), jwt.ErrSignature},
		"RS256 signature called EdDSA": {craft(`{"alg":"EdDSA"}`, goodBody, withRSA(rsaKey(), crypto.SHA256)),
			jwt.ErrSignature},
		"ES256 signature called ES384": {craft(`{"alg":"ES384"}`, goodBody, withEC(ecKey())), jwt.ErrSignature},
		"ES384 signature called ES256": {craft(`{"alg":"ES256"}`, goodBody, withEC(p384)), jwt.ErrSignature},
		"ES256 with zeros": {craft(`{"alg":"ES256"}`, goodBody, func(string) []byte {
			return make([]byte, 64)
		}), jwt.ErrSignature},
		"crit": {craft(header(`"crit":["exp"],"exp":1`), goodBody, withEd(ed)),
			jwt.ErrUnsupported},
		"crit, empty": {craft(header(`"crit":[]`), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"crit, null":  {craft(header(`"crit":null`), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"b64 false":   {craft(header(`"b64":false`), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"zip":         {craft(header(`"zip":"DEF"`), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"enc":         {craft(header(`"enc":"A256GCM"`), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"typ of another kind": {craft(`{"alg":"EdDSA","typ":"at+jwt"}`, goodBody, withEd(ed)),
			jwt.ErrUnsupported},
		"typ a number":               {craft(`{"alg":"EdDSA","typ":1}`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"embedded jwk, signed by it": {craft(header(jwk), goodBody, withEd(foreign)), jwt.ErrUnsupported},
		"embedded jwk, signed by us": {craft(header(jwk), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"jku": {craft(header(`"jku":"https://evil.example.net/"`), goodBody, withEd(ed)),
			jwt.ErrUnsupported},
		"x5u": {craft(header(`"x5u":"https://evil.example.net/"`), goodBody, withEd(ed)),
			jwt.ErrUnsupported},
		"x5c":            {craft(header(`"x5c":["MIIB"]`), goodBody, withEd(ed)), jwt.ErrUnsupported},
		"foreign signer": {craft(edHeader, goodBody, withEd(foreign)), jwt.ErrSignature},
		"foreign RSA signer": {craft(`{"alg":"RS256"}`, goodBody,
			withRSA(mustRSA("rsa-2048-other"), crypto.SHA256)), jwt.ErrSignature},
		"claims exchanged": {exchange(good, 1, b64([]byte(body(`"exp":9999999999`)))), jwt.ErrSignature},
		"header exchanged": {exchange(good, 0, b64([]byte(`{"typ":"JWT","alg":"EdDSA"}`))),
			jwt.ErrSignature},
		"signature cut short":            {good[:len(good)-2], jwt.ErrSignature},
		"signature missing":              {craft(edHeader, goodBody, unsigned), jwt.ErrMalformed},
		"signature missing with its dot": {good[:strings.LastIndex(good, ".")], jwt.ErrMalformed},
		"header twice": {craft(`{"alg":"EdDSA","alg":"none"}`, goodBody, withEd(ed)),
			jwt.ErrMalformed},
		"header twice by escape": {craft(`{"alg":"EdDSA","\u0061lg":"none"}`, goodBody, withEd(ed)),
			jwt.ErrMalformed},
		"header no object":          {craft(`["EdDSA"]`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"header null":               {craft(`null`, goodBody, withEd(ed)), jwt.ErrMalformed},
		"header with data after it": {craft(edHeader+"{}", goodBody, withEd(ed)), jwt.ErrMalformed},
		"claims twice": {craft(edHeader, body(`"chu":"evil.example.net:4222"`), withEd(ed)),
			jwt.ErrMalformed},
		"claims twice, deep": {craft(edHeader, body(`"extensions":{"a":{"b":1,"b":2}}`), withEd(ed)),
			jwt.ErrMalformed},
		"claims with data after them": {craft(edHeader, goodBody+goodBody, withEd(ed)), jwt.ErrMalformed},
		"claims no object":            {craft(edHeader, `[]`, withEd(ed)), jwt.ErrMalformed},
		"claims null":                 {craft(edHeader, `null`, withEd(ed)), jwt.ErrMalformed},
		"claims no JSON":              {craft(edHeader, `hello`, withEd(ed)), jwt.ErrMalformed},
		"claims of invalid UTF-8":     {craft(edHeader, body("\"x\":\"\xff\""), withEd(ed)), jwt.ErrMalformed},
		"claims nested 1000 deep": {craft(edHeader,
			body(`"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), withEd(ed)), jwt.ErrMalformed},
		"claim in another case":         {craft(edHeader, body(`"EXP":1`), withEd(ed)), jwt.ErrMalformed},
		"claim with a long s":           {craft(edHeader, body(`"i\u017fs":"x"`), withEd(ed)), jwt.ErrMalformed},
		"claim null":                    {craft(edHeader, body(`"exp":null`), withEd(ed)), jwt.ErrMalformed},
		"claim of another type":         {craft(edHeader, body(`"chpwd":1`), withEd(ed)), jwt.ErrMalformed},
		"exp a string":                  {craft(edHeader, body(`"exp":"1772366400"`), withEd(ed)), jwt.ErrMalformed},
		"exp zero":                      {craft(edHeader, body(`"exp":0`), withEd(ed)), jwt.ErrMalformed},
		"exp negative":                  {craft(edHeader, body(`"exp":-1`), withEd(ed)), jwt.ErrMalformed},
		"exp beyond all years":          {craft(edHeader, body(`"exp":1e300`), withEd(ed)), jwt.ErrMalformed},
		"data after the token":          {good + "x===", jwt.ErrMalformed},
		"line end after the token":      {good + "\n", jwt.ErrMalformed},
		"line end inside the token":     {good[:20] + "\n" + good[20:], jwt.ErrMalformed},
		"line end inside the signature": {good[:len(good)-20] + "\r\n" + good[len(good)-20:], jwt.ErrMalformed},
		"blank before the token":        {" " + good, jwt.ErrMalformed},
		"a fourth part":                 {good + ".e30", jwt.ErrMalformed},
		"padding":                       {good + "==", jwt.ErrMalformed},
		"alphabet of plain base64": {strings.Replace(craft(edHeader, body(`"x":"???>>>~~~"`), withEd(ed)), "_",
			"/", 1), jwt.ErrMalformed},
		"stray bits in the last digit":    {good[:len(good)-1] + string(stray(good[len(good)-1])), jwt.ErrMalformed},
		"JSON serialization":              {`{"payload":"e30","signatures":[]}`, jwt.ErrMalformed},
		"five parts, as encrypted tokens": {"e30.e30.e30.e30.e30", jwt.ErrMalformed},
		"empty":                           {"", jwt.ErrMalformed},
		"dots only":                       {"..", jwt.ErrMalformed},
		"one byte too large":              {craftSized(t, jwt.MaxTokenBytes+1, withEd(ed)), jwt.ErrMalformed},
		"as large as allowed":             {craftSized(t, jwt.MaxTokenBytes, withEd(ed)), nil},
		"megabytes":                       {strings.Repeat("a", 4<<20), jwt.ErrMalformed},
		"purpose of another kind": {craft(edHeader, `{"cht":"x","purpose":"choria_client"}`, withEd(ed)),
			jwt.ErrPurpose},
		"no purpose and no subject": {craft(edHeader, `{"cht":"x","iss":"choria_provisioning"}`, withEd(ed)),
			jwt.ErrPurpose},
		"purpose without subject": {craft(edHeader, `{"cht":"x","purpose":"choria_provisioning"}`, withEd(ed)),
			nil},
		"expired": {craft(edHeader, body(`"exp":`+unix(noon)), withEd(ed)), jwt.ErrExpired},
		"last second": {craft(edHeader, body(`"exp":`+unix(noon.Add(time.Second))), withEd(ed)),
			nil},
		"expired by a fraction": {craft(edHeader, body(`"exp":`+unix(noon)+`.9`), withEd(ed)),
			jwt.ErrExpired},
		"expired in another notation": {craft(edHeader, body(`"exp":1.772366399e9`), withEd(ed)), jwt.ErrExpired},
		"issuer expired": {craft(edHeader,
			body(`"exp":`+unix(noon.Add(time.Hour))+`,"issexp":`+unix(noon)), withEd(ed)), jwt.ErrExpired},
		"issuer expired, no exp": {craft(edHeader, body(`"issexp":`+unix(noon)), withEd(ed)), jwt.ErrExpired},
		"not yet valid": {craft(edHeader,
			strings.Replace(goodBody, `"nbf":1577723210`, `"nbf":`+unix(noon.Add(61*time.Second)), 1), withEd(ed)),
			jwt.ErrNotYetValid},
		"not yet valid within the leeway": {craft(edHeader,
			strings.Replace(goodBody, `"nbf":1577723210`, `"nbf":`+unix(noon.Add(60*time.Second)), 1), withEd(ed)),
			nil},
		"unknown limit": {craft(edHeader, body(`"extensions":{"muster":{"weekdays":[1]}}`), withEd(ed)),
			jwt.ErrLimit},
		"limit in another case": {craft(edHeader, body(`"extensions":{"muster":{"Site":"ams"}}`), withEd(ed)),
			jwt.ErrLimit},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, pass := range []string{"first", "remembered"} {
				got, err := v.Verify(tt.text)
				if !errors.Is(err, tt.want) {
					t.Fatalf("%s: Verify error = %v, want %v", pass, err, tt.want)
				}
				if (got == nil) != (err != nil) {
					t.Fatalf("%s: Verify = %v beside error %v", pass, got, err)
				}
				if n := sentinels(err); err != nil && n != 1 {
					t.Errorf("%s: Verify error %q wraps %d of the documented errors, want 1", pass, err, n)
				}
				if err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%s: Verify error %q has the secret", pass, err)
				}
			}
		})
	}
}

// Errors go into logs, so a long malformed token must not make them long.
func TestErrorsOfRefusedTokensAreShort(t *testing.T) {
	t.Parallel()
	ed := edKey("signer")
	v := verifier(t, jwt.Signer{Name: "ed", Key: ed.Public(), Identities: []wire.Pattern{"only.example.net"}})
	long, digits := strings.Repeat("s3cret ", 600), strings.Repeat("9", 5000)
	body := func(extra string) string { return strings.TrimSuffix(goodBody, "}") + "," + extra + "}" }
	other := strings.Replace(goodBody, `"sub":"choria_provisioning"`, `"sub":"`+long+`"`, 1)
	for name, text := range map[string]string{
		"algorithm":       craft(`{"alg":"`+long+`"}`, goodBody, withEd(ed)),
		"type":            craft(`{"alg":"EdDSA","typ":"`+long+`"}`, goodBody, withEd(ed)),
		"subject":         craft(edHeader, other, withEd(ed)),
		"time":            craft(edHeader, body(`"exp":`+digits), withEd(ed)),
		"time of text":    craft(edHeader, body(`"exp":"`+long+`"`), withEd(ed)),
		"number for text": craft(edHeader, body(`"jti":`+digits), withEd(ed)),
		"authority":       craft(edHeader, body(`"extensions":{"muster":{"ca":"`+long+`"}}`), withEd(ed)),
		"limit":           craft(edHeader, body(`"extensions":{"muster":{"`+long+`":1}}`), withEd(ed)),
		"identities": craft(edHeader, body(`"extensions":{"muster":{"identities":["`+strings.Repeat(`A","`, 900)+
			`A"]}}`), withEd(ed)),
	} {
		_, err := v.Verify(text)
		if err == nil || len(err.Error()) > 600 {
			t.Errorf("%s: %d bytes are said of a token of %d, want 600 at most: %.1000v", name, len(fmt.Sprint(err)),
				len(text), err)
		}
	}
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf(`"web%d.example.net"`, i))
	}
	admitted, err := v.Verify(craft(edHeader,
		body(`"extensions":{"muster":{"identities":[`+strings.Join(names, ",")+`]}}`), withEd(ed)))
	if err != nil {
		t.Fatal(err)
	}
	err = admitted.Admits("db1.example.net", "")
	want := `"db1.example.net", token is for ["web0.example.net" "web1.example.net" "web2.example.net"] and 197 more`
	if !errors.Is(err, jwt.ErrIdentity) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("another name: %.1000v, want %s", err, want)
	}
}

// exchange replaces one part of a token.
func exchange(text string, part int, by string) string {
	parts := strings.Split(text, ".")
	parts[part] = by
	return strings.Join(parts, ".")
}

// stray returns a base64url digit that differs from c in its lowest bit only, which carries nothing at the end of 64
// bytes.
func stray(c byte) byte {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return digits[strings.IndexByte(digits, c)^1]
}

// craftSized makes a valid token of exactly so many bytes.
func craftSized(tb testing.TB, size int, sign signFunc) string {
	tb.Helper()
	for _, header := range []string{`{"alg":"EdDSA"}`, `{"alg":"EdDSA" }`, `{"alg":"EdDSA"  }`} {
		for pad := size * 3 / 4; pad > 0; pad-- {
			body := strings.TrimSuffix(goodBody, "}") + `,"x":"` + strings.Repeat("x", pad) + `"}`
			length := base64.RawURLEncoding.EncodedLen(len(header)) + base64.RawURLEncoding.EncodedLen(len(body)) +
				86 + 2
			if length == size {
				return craft(header, body, sign)
			}
		}
	}
	tb.Fatalf("no token of %d bytes", size)
	return ""
}

func unix(t time.Time) string { return fmt.Sprint(t.Unix()) }

// sentinels counts the documented errors that err wraps.
func sentinels(err error) int {
	n := 0
	for _, s := range []error{
		jwt.ErrMalformed, jwt.ErrUnsupported, jwt.ErrLimit, jwt.ErrUnknownSigner, jwt.ErrSignature, jwt.ErrExpired,
		jwt.ErrNotYetValid, jwt.ErrPurpose, jwt.ErrSignerExpired, jwt.ErrIdentity, jwt.ErrSite, jwt.ErrBudget,
	} {
		if errors.Is(err, s) {
			n++
		}
	}
	return n
}
