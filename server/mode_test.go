package server_test

import (
	"errors"
	"testing"

	"muster/server"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	var (
		missing = server.ErrMissing
		broken  = server.ErrUnusable
		bad     = errors.New("certificate has expired")
		yes     = server.ProvisionSetting{Yes: true}
		no      = server.ProvisionSetting{No: true}
	)
	tests := map[string]struct {
		conf      error
		says      server.ProvisionSetting
		token     error
		byDefault bool
		creds     error
		pending   bool
		blocked   error
		want      server.Mode // 0: an error
	}{
		"configured":                             {want: server.ModeNormal},
		"configured, no token":                   {token: missing, want: server.ModeNormal},
		"configured, useless token":              {token: broken, want: server.ModeNormal},
		"configured, token by default":           {byDefault: true, want: server.ModeNormal},
		"configured, provision false":            {says: no, byDefault: true, want: server.ModeNormal},
		"configured, provision true":             {says: yes, byDefault: true, want: server.ModeProvisioning},
		"configured, provision true, no default": {says: yes, want: server.ModeProvisioning},
		"configured, provision true, no token":   {says: yes, token: missing},
		"configured, provision true, bad token":  {says: yes, token: broken},
		"no configuration, by default": {
			conf:      missing,
			creds:     missing,
			byDefault: true,
			want:      server.ModeProvisioning,
		},
		"no configuration, not by default":   {conf: missing, creds: missing},
		"no configuration, no token":         {conf: missing, creds: missing, token: missing},
		"no configuration, bad token":        {conf: missing, creds: missing, token: broken},
		"no configuration, good certificate": {conf: missing, byDefault: true, want: server.ModeProvisioning},
		"broken configuration, by default": {
			conf:      broken,
			creds:     missing,
			byDefault: true,
			want:      server.ModeProvisioning,
		},
		"broken configuration, not by default": {conf: broken, creds: missing},
		"broken configuration, says false":     {conf: broken, says: no, creds: missing, byDefault: true},
		"broken configuration, says true": {
			conf:  broken,
			says:  yes,
			creds: missing,
			want:  server.ModeProvisioning,
		},
		"broken configuration, says both": {conf: broken, says: server.ProvisionSetting{Yes: true, No: true},
			byDefault: true},
		"broken configuration, says something else": {conf: broken, says: server.ProvisionSetting{Invalid: "flase"},
			byDefault: true},
		"expired certificate, by default":        {creds: bad, byDefault: true, want: server.ModeProvisioning},
		"expired certificate, not by default":    {creds: bad},
		"expired certificate, says false":        {creds: bad, says: no, byDefault: true},
		"expired certificate, says true":         {creds: bad, says: yes, want: server.ModeProvisioning},
		"expired certificate, no token":          {creds: bad, token: missing},
		"disowned before it was confirmed":       {creds: bad, pending: true, want: server.ModeProvisioning},
		"disowned, says false, before confirmed": {creds: bad, pending: true, says: no, want: server.ModeProvisioning},
		"disowned before confirmed, no token":    {creds: bad, pending: true, token: missing},
		"blocked, by default":                    {conf: missing, creds: bad, byDefault: true, blocked: bad},
		"blocked, says true":                     {creds: bad, says: yes, blocked: bad},
		"blocked, says false":                    {creds: bad, says: no, blocked: bad},
		"blocked, unconfirmed":                   {creds: bad, pending: true, blocked: bad},
		"unconfirmed, in good order":             {pending: true, says: no, want: server.ModeNormal},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server.Situation{Conf: tt.conf, Provision: tt.says, Token: tt.token, ByDefault: tt.byDefault,
				Credentials: tt.creds, Pending: tt.pending, Blocked: tt.blocked}
			mode, reason, err := s.Decide()
			switch {
			case mode != tt.want:
				t.Errorf("Decide = %v, %q, %v; want %v", mode, reason, err, tt.want)
			case tt.want == 0 && (!errors.Is(err, server.ErrMode) || reason != ""):
				t.Errorf("Decide = %v, %q, %v; want ErrMode alone", mode, reason, err)
			case tt.want != 0 && (err != nil || reason == ""):
				t.Errorf("Decide = %v, %q, %v; want a reason and no error", mode, reason, err)
			}
		})
	}
}
