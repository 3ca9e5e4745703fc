package changes

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/render"
)

// Each type of Repositories has its refs, and a ref of another type is stated.
func TestPlacesOfRepositories(t *testing.T) {
	secret := &v1alpha1.RepositorySecretRef{Name: "token"}
	git := v1alpha1.RepositorySpec{Git: &v1alpha1.GitRepository{URL: "https://h/a", SecretRef: secret, CABundle: "pem"}}
	helm := v1alpha1.RepositorySpec{Helm: &v1alpha1.HelmRepository{URL: "oci://h/charts", SecretRef: secret, CABundle: "pem"}}
	oci := v1alpha1.RepositorySpec{OCI: &v1alpha1.OCIRepository{URL: "oci://h/files", SecretRef: secret, CABundle: "pem"}}
	commit := strings.Repeat("a", 40)
	for name, c := range map[string]struct {
		spec *v1alpha1.RepositorySpec
		ref  v1alpha1.SourceRef
		want string
	}{
		"a branch":          {&git, v1alpha1.SourceRef{Branch: "main"}, "refs/heads/main"},
		"a tag":             {&git, v1alpha1.SourceRef{Tag: "v1"}, "refs/tags/v1"},
		"a commit":          {&git, v1alpha1.SourceRef{Commit: commit}, commit},
		"a chart":           {&helm, v1alpha1.SourceRef{Chart: "shop", Version: ">=1 <2"}, "shop@>=1 <2"},
		"a tag of OCI":      {&oci, v1alpha1.SourceRef{Tag: "latest"}, "tag@latest"},
		"a digest":          {&oci, v1alpha1.SourceRef{Digest: "sha256:a"}, "digest@sha256:a"},
		"a version of OCI":  {&oci, v1alpha1.SourceRef{Version: "1.x"}, "version@1.x"},
		"a chart of OCI":    {&oci, v1alpha1.SourceRef{Chart: "shop", Version: "1.x"}, "RefUnsupported"},
		"a branch of OCI":   {&oci, v1alpha1.SourceRef{Branch: "main"}, "RefUnsupported"},
		"a digest of git":   {&git, v1alpha1.SourceRef{Digest: "sha256:a"}, "RefUnsupported"},
		"a chart of git":    {&git, v1alpha1.SourceRef{Chart: "shop", Version: "1.x"}, "RefUnsupported"},
		"a branch of Helm":  {&helm, v1alpha1.SourceRef{Branch: "main"}, "RefUnsupported"},
		"a type of nothing": {&v1alpha1.RepositorySpec{}, v1alpha1.SourceRef{Branch: "main"}, "RefUnsupported"},
	} {
		p := PlaceOf(c.spec)
		got, err := p.RefOf(&v1alpha1.Source{Spec: v1alpha1.SourceSpec{Repository: "repo", Ref: c.ref}})
		var failure *render.Failure
		if errors.As(err, &failure) {
			got = string(failure.Reason)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if p.Type != "" && (p.SecretRef != secret || p.CABundle != "pem" || !strings.HasSuffix(p.URL, map[string]string{"git": "/a", "helm": "/charts", "oci": "/files"}[p.Type])) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// The token host of a registry is a part of its place, so that another one is another place.
func TestTokenHostsOfPlaces(t *testing.T) {
	for name, spec := range map[string]v1alpha1.RepositorySpec{
		"helm": {Helm: &v1alpha1.HelmRepository{URL: "oci://h/charts", TokenHost: "auth.h"}}, "oci": {OCI: &v1alpha1.OCIRepository{URL: "oci://h/a", TokenHost: "auth.h"}},
	} {
		if p := PlaceOf(&spec); p.TokenHost != "auth.h" || p.Type != name || !p.UsesRegistry() {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Each place has what can be signed there.
func TestVerificationModesOfPlaces(t *testing.T) {
	for _, c := range []struct{ kind, url, want string }{
		{"git", "https://h/a", "[Commit Tag TagAndCommit]"}, {"git", "ssh://git@h/a", "[Commit Tag TagAndCommit]"}, {"oci", "oci://h/a", "[Artifact]"},
		{"helm", "oci://h/a", "[Artifact Provenance]"}, {"helm", "https://h/a", "[Provenance]"}, {"helm", "http://h/a", "[Provenance]"}, {"", "https://h/a", "[]"},
	} {
		if got := fmt.Sprint(Place{Type: c.kind, URL: c.url}.VerificationModes()); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.kind, c.url, got, c.want)
		}
	}
}

// The short form of SSH becomes a URL, and other texts do not.
func TestShortFormsOfSSH(t *testing.T) {
	for text, want := range map[string]string{
		"git@github.com:shop/deploy.git": "ssh://git@github.com/shop/deploy.git", "ann@h:/srv/a.git": "ssh://ann@h/srv/a.git", "git@h:a%b": "ssh://git@h/a%25b",
		"git@h": "", "h:a": "", "git@h::a": "", "git@h:": "", "git@h:a b": "", "ext::sh -c git@h:a": "", "https://git@h:8443/a": "", "ssh://git@h/a": "",
	} {
		if got, is := ConvertShortForm(text); got != want || is != (want != "") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for url, want := range map[string]bool{"ssh://git@h/a": true, "SSH://git@h/a": true, "https://h/a": false, "ssh:": true, "git@h:a": false} {
		if got := (Place{URL: url}).UsesSSH(); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

func TestRevisionsForPeople(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789ab", 5)
	for revision, want := range map[string]string{
		"1f0c9d2e7ab41f0c9d2e7ab4": "commit 1f0c9d2e7ab4", "c1": "commit c1", "": "commit ",
		"shop:1.2.0@" + digest: "version 1.2.0@0123456789ab", "shop:1.2.0@x": "version 1.2.0@x", "latest@" + digest: "version latest@0123456789ab", digest: "version 0123456789ab",
	} {
		if got := DescribeRevision(revision); got != want {
			t.Errorf("%q: %q, want %q", revision, got, want)
		}
	}
}

// Another version is another revision of the same settings, and another chart is another setting.
func TestVersionsAreNoSettings(t *testing.T) {
	digest := func(chart, version string) string {
		s := &v1alpha1.Source{Spec: v1alpha1.SourceSpec{Ref: v1alpha1.SourceRef{Chart: chart, Version: version}}}
		return DigestSettings(s, "https://h", render.Result{}, "")
	}
	if digest("shop", "1.0.0") != digest("shop", "2.x") {
		t.Error("another version is another setting")
	}
	if digest("shop", "1.0.0") == digest("other", "1.0.0") {
		t.Error("another chart is the same setting")
	}
}
