package ca_test

import (
	"crypto/x509"
	"testing"

	zx509 "github.com/zmap/zcrypto/x509"
	"github.com/zmap/zlint/v3"
	"github.com/zmap/zlint/v3/lint"
)

// publicOnly lists lints that do not apply, by reason: rules of browsers for public authorities. No RFC lint is
// among them.
var publicOnly = map[string][]string{
	"there is no OCSP responder or log, and CRLs come from the provisioner": {
		"e_missing_crl_distrib_point", "e_sub_ca_crl_distribution_points_missing", "e_sub_cert_aia_missing", "w_sub_ca_aia_missing",
		"w_sub_cert_aia_does_not_contain_issuing_ca_url", "n_ct_sct_policy_count_unsatisfied", "n_ca_digital_signature_not_set",
	},
	"policies are for relying parties that do not know the authority": {
		"e_invalid_ca_certificate_policies", "e_sub_ca_certificate_policies_missing", "e_sub_cert_cert_policy_empty",
		"e_sub_cert_certificate_policies_missing", "n_mp_allowed_eku", "n_sub_ca_eku_missing",
	},
	"the authority is a machine's, of no organization or country": {
		"e_ca_country_name_missing", "e_ca_organization_name_missing",
	},
	"names and addresses are those of a private network, the name of a broker is no host name, and every holder has a SPIFFE ID": {
		"e_dnsname_not_valid_tld", "e_ext_san_contains_reserved_ip", "n_san_iana_pub_suffix_empty",
		"e_subject_common_name_not_exactly_from_san", "e_ext_san_uniform_resource_identifier_present", "w_subject_common_name_included",
	},
	"RFC 5280 section 4.2.1.2 asks for what browsers no longer like": {
		"w_ext_subject_key_identifier_not_recommended_subscriber",
	},
	"browsers allow no Ed25519 yet (RFC 8410 does)": {
		"e_algorithm_identifier_improper_encoding",
	},
}

func lints(t *testing.T) lint.Registry {
	t.Helper()
	registry := lint.GlobalRegistry()
	var excluded []string
	for _, names := range publicOnly {
		for _, name := range names {
			l := registry.ByName(name)
			if l == nil {
				t.Fatalf("zlint has no lint %s", name)
			}
			switch l.Source {
			case lint.RFC3279, lint.RFC5280, lint.RFC5480, lint.RFC5891, lint.RFC8813:
				t.Errorf("lint %s is of %s, which binds us", name, l.Source)
			}
			excluded = append(excluded, name)
		}
	}
	filtered, err := registry.Filter(lint.FilterOptions{ExcludeNames: excluded})
	if err != nil {
		t.Fatal(err)
	}
	return filtered
}

// TestZlint lints authorities, also a rolled one, and certificates of each role and key type.
func TestZlint(t *testing.T) {
	t.Parallel()
	lints := lints(t)
	cfg := config(t)
	a := authority(t, nil)
	rolled := roll(t)
	certs := map[string]*x509.Certificate{
		"root": cfg.Root, "issuing": cfg.Issuing, "next root": rolled.Root, "next issuing": rolled.Issuing,
		"new with old": rolled.Cross[0], "old with new": rolled.Cross[1],
	}
	for keyType, key := range keys(t) {
		for name, r := range requests() {
			r.PublicKey = key.Public()
			_, certs[name+" "+keyType] = issue(t, a, r)
		}
	}
	for name, c := range certs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, err := zx509.ParseCertificate(c.Raw)
			if err != nil {
				t.Fatal(err)
			}
			passed := 0
			for id, r := range zlint.LintCertificateEx(parsed, lints).Results {
				switch {
				case r.Status >= lint.Notice:
					t.Errorf("%s: %v %s", id, r.Status, r.Details)
				case r.Status == lint.Pass:
					passed++
				}
			}
			if passed < 40 {
				t.Errorf("only %d lints applied", passed)
			}
		})
	}
}
