package daemon

import (
	"strings"
	"testing"
)

// What may be secret in the configuration is not shown, and the configuration in use keeps it.
func TestSecretsOfTheConfigurationAreHidden(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Broker.URL = "tls://user:hush@a.example.net:4222,tls://hush-token@b.example.net"
	c.Choria.Fleet.URL = "nats://hush:hush@c.example.net"
	c.Webhooks = []WebhookConfig{{Name: "pager", URL: "https://u:hush@hooks.example.net/hush?hush=1"}, {URL: "https://h/hush"}}
	c.Configuration.Helper = []string{"/usr/bin/helper", "--password", "hush"}
	c.Waiting.Autosign.Command = []string{"/usr/bin/autosign"}
	text, err := c.shown()
	if err != nil || strings.Contains(text, "hush") {
		t.Errorf("%v, or secrets are shown:\n%s", err, text)
	}
	for _, want := range []string{
		"url: tls://(secret)@a.example.net:4222,tls://(secret)@b.example.net\n", "https://hooks.example.net/(secret)\n",
		"- /usr/bin/helper\n", "- /usr/bin/autosign\n", "lifetime: 30d\n", "per_token: 500000\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if c.Webhooks[0].URL == "" || strings.Contains(c.Webhooks[0].URL, "(secret)") || len(c.Configuration.Helper) != 3 {
		t.Errorf("the configuration was changed: %+v", c)
	}
}
