package sources

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/signature"
)

// verifiedHub is a hub whose Repository states verify, with a Secret of trusted keys.
func verifiedHub(t *testing.T) (h *hub, setKeys func(text string)) {
	t.Helper()
	h = newHub(t, branch)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: repoKey.Namespace, Name: "keys"}}
	if err := h.r.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	editRepository(h, func(s *v1alpha1.RepositorySpec) {
		s.Verify = &v1alpha1.RepositoryVerification{Mode: v1alpha1.VerifyTagAndCommit, SecretRef: v1alpha1.RepositorySecretRef{Name: "keys"}}
	})
	return h, func(text string) {
		secret.Data = nil
		if text != "" {
			secret.Data = map[string][]byte{"a.pub": []byte(text)}
		}
		if err := h.r.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
}

func editRepository(h *hub, change func(*v1alpha1.RepositorySpec)) {
	h.t.Helper()
	var repo v1alpha1.Repository
	if err := h.r.Client.Get(h.t.Context(), repoKey, &repo); err != nil {
		h.t.Fatal(err)
	}
	change(&repo.Spec)
	repo.Generation++
	if err := h.r.Client.Update(h.t.Context(), &repo); err != nil {
		h.t.Fatal(err)
	}
	h.refreshTables()
}

// Content passes with a signature of a trusted key alone. A refusal removes nothing, and other keys are another question.
func TestVerification(t *testing.T) {
	h, setKeys := verifiedHub(t)
	reachable := func() string {
		repo, _ := h.tables.Repositories.Get(repoKey)
		return meta.FindStatusCondition(repo.Status.Conditions, v1alpha1.RepositoryReachable).Reason
	}
	digest := func() string {
		repo, _ := h.tables.Repositories.Get(repoKey)
		return repo.Status.TrustedKeysDigest
	}
	last := func() fetch.Want { return h.requests[len(h.requests)-1].Wants[0] }
	h.setCommit("c1", "a=1")
	if got := h.runCheck(); got != "" || reachable() != "TrustedKeysMissing" || h.countRequests() != 0 {
		t.Errorf("no keys: %q, %s", got, reachable())
	}
	setKeys("one")
	h.commit.Signer = "key one"
	h.expectCheck("a signed commit", "apply a", good)
	if v := h.requests[0].Verify; v == nil || v.Mode != signature.ModeTagAndCommit || string(v.Keys["a.pub"]) != "one" {
		t.Errorf("%+v", v)
	}
	if v := h.readSource().Status.Verified; v == nil || *v != (v1alpha1.SourceVerified{Commit: "c1", Signer: "key one"}) {
		t.Errorf("%+v", v)
	}
	first := digest()
	h.runCheck()
	if last().SeenCommit != "c1" || first == "" {
		t.Errorf("at rest the commit is %q, by the keys %q", last().SeenCommit, first)
	}
	h.setCommit("c2", "a=2")
	h.commit.Failure = &fetch.Failure{Reason: atoll.ReasonSignerUntrusted, Message: "signed by another key"}
	if got := h.runCheck(); got != "" {
		t.Errorf("a commit of another key: %s", got)
	}
	s := h.readSource()
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceRendered)
	if c.Reason != "SignerUntrusted" || !strings.Contains(c.Message, "commit c2: signed by another key; what runs stays") || s.Status.Commit != "c1" || s.Status.Verified.Commit != "c1" {
		t.Errorf("%+v, %+v", c, s.Status)
	}
	h.runCheck()
	if last().SeenCommit != "c2" {
		t.Errorf("the commit is read again by the same keys: %+v", last())
	}
	setKeys("one and two")
	h.commit.Failure, h.commit.Signer = nil, "key two"
	h.expectCheck("other keys", "apply a", good)
	if last().SeenCommit != "" || last().SeenDigest != "" || digest() == first {
		t.Errorf("with other keys the commit counts as seen: %+v", last())
	}
	setKeys("")
	h.setCommit("c3", "b=1")
	for range 2 {
		if got := h.runCheck(); got != "" || reachable() != "TrustedKeysMissing" {
			t.Errorf("the keys are gone: %q, %s", got, reachable())
		}
	}
	if c := meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceRendered); c.Reason != "TrustedKeysMissing" {
		t.Errorf("%+v", c)
	}
	setKeys(strings.Repeat("k", signature.MaxKeyBytes+1))
	if got := h.runCheck(); got != "" || reachable() != "TrustedKeysMissing" {
		t.Errorf("many keys: %q, %s", got, reachable())
	}
	editRepository(h, func(s *v1alpha1.RepositorySpec) { s.Verify = nil })
	h.commit.Signer = ""
	h.runCheck()
	if s := h.readSource(); s.Status.Commit != "c3" || s.Status.Verified != nil || digest() != "" {
		t.Errorf("without verify: %+v", s.Status)
	}
}

// A tag that was refused can be signed again for the same commit. So the commit does not count as seen, and no other refusal is read again.
func TestATagIsSignedAgain(t *testing.T) {
	h, setKeys := verifiedHub(t)
	setKeys("one")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Ref = v1alpha1.SourceRef{Tag: "v1"} })
	h.setCommit("c1", "a=1")
	h.commit.Failure = &fetch.Failure{Reason: atoll.ReasonSignatureMissing, Message: "a lightweight tag"}
	for range 2 {
		if got := h.runCheck(); got != "" {
			t.Fatalf("a tag without a signature: %s", got)
		}
	}
	if want := h.lastWant(); want.Ref != "refs/tags/v1" || want.SeenCommit != "" {
		t.Errorf("the tag counts as seen: %+v", want)
	}
	h.commit.Failure, h.commit.Signer = nil, "key one"
	h.expectCheck("the tag is signed", "apply a", good)
	h.runCheck()
	if want := h.lastWant(); want.SeenCommit != "c1" {
		t.Errorf("a signed tag at rest: %+v", want)
	}
}

// cosign signs an artifact after its push, so a refused one is read again, soon and at each check, until its signature is there. No state is
// written twice.
func TestAnArtifactIsSignedLater(t *testing.T) {
	h, setKeys := verifiedHub(t)
	setKeys("one")
	editRepository(h, func(s *v1alpha1.RepositorySpec) {
		s.Git, s.OCI, s.Verify.Mode = nil, &v1alpha1.OCIRepository{URL: "oci://registry.example.com/shop"}, v1alpha1.VerifyArtifact
	})
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Ref = v1alpha1.SourceRef{Tag: "latest"} })
	h.setCommit("latest@sha256:c1", "a=1")
	h.commit.Failure = &fetch.Failure{Reason: atoll.ReasonSignatureMissing, Message: "no signature"}
	var first string
	for i := range 3 {
		if got := h.runCheck(); got != "" {
			t.Fatalf("an artifact without a signature: %s", got)
		}
		if want := h.lastWant(); want.Ref != "tag@latest" || want.SeenCommit != "" {
			t.Errorf("the artifact counts as seen: %+v", want)
		}
		if i == 0 {
			first = h.readSource().ResourceVersion
		}
		repo, _ := h.tables.Repositories.Get(repoKey)
		if len(repo.Status.Refs) > 0 {
			t.Errorf("the artifact counts as considered: %+v", repo.Status.Refs)
		}
	}
	s := h.readSource()
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceRendered)
	if c.Reason != "SignatureMissing" || !strings.Contains(c.Message, "what runs stays") || s.ResourceVersion != first {
		t.Errorf("%+v, version %s after %s", c, s.ResourceVersion, first)
	}
	h.commit.Failure, h.commit.Signer = nil, "key one"
	h.expectCheck("the artifact is signed", "apply a", good)
	if v := h.readSource().Status.Verified; v == nil || *v != (v1alpha1.SourceVerified{Commit: "latest@sha256:c1", Signer: "key one"}) {
		t.Errorf("%+v", v)
	}
	h.runCheck()
	if want := h.lastWant(); want.SeenCommit != "latest@sha256:c1" || h.requests[len(h.requests)-1].Verify.Mode != signature.ModeArtifact {
		t.Errorf("a signed artifact at rest: %+v", want)
	}
}

func TestWhatMayBeSignedLater(t *testing.T) {
	for _, c := range []struct {
		mode   signature.Mode
		reason atoll.Reason
		want   bool
	}{
		{signature.ModeArtifact, atoll.ReasonSignatureMissing, true}, {signature.ModeArtifact, atoll.ReasonSignerUntrusted, true}, {signature.ModeProvenance, atoll.ReasonSignatureInvalid, true},
		{signature.ModeArtifact, atoll.ReasonContentInvalid, false}, {signature.ModeCommit, atoll.ReasonSignatureMissing, false}, {signature.ModeTag, atoll.ReasonSignatureMissing, false},
	} {
		if got := maySignLater(c.reason, &fetch.Verification{Mode: c.mode}); got != c.want {
			t.Errorf("%s of %s: %v", c.reason, c.mode, got)
		}
	}
	if maySignLater(atoll.ReasonSignatureMissing, nil) {
		t.Error("a signature comes without verify")
	}
}

// A commit that was refused is none that was considered after a suspension, also when the first check after it fails. Else the Source
// would report it as rendered.
func TestARefusedCommitAfterASuspension(t *testing.T) {
	h, setKeys := verifiedHub(t)
	setKeys("one")
	h.setCommit("c1", "a=1")
	h.commit.Signer = "key one"
	h.expectCheck("a signed commit", "apply a", good)
	h.setCommit("c2", "a=2")
	h.commit.Failure = &fetch.Failure{Reason: atoll.ReasonSignerUntrusted, Message: "signed by another key"}
	h.runCheck()
	for _, suspend := range []bool{true, false} {
		editRepository(h, func(s *v1alpha1.RepositorySpec) { s.Suspend = suspend })
		h.fails = &fetch.Failure{Reason: atoll.ReasonRepositoryUnreachable, Message: "no answer"}
		h.runCheck()
	}
	h.fails = nil
	if got := h.runCheck(); got != "" || h.lastWant().SeenCommit != "" {
		t.Errorf("%q: the refused commit counts as considered: %+v", got, h.lastWant())
	}
	if c := meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceRendered); c.Reason != "SignerUntrusted" {
		t.Errorf("%+v", c)
	}
}

func TestWhatWaitsForATag(t *testing.T) {
	for name, c := range map[string]struct {
		ref    string
		mode   signature.Mode
		reason atoll.Reason
		want   bool
	}{
		"a tag":              {"refs/tags/v1", signature.ModeTag, atoll.ReasonSignatureMissing, true},
		"a tag by another":   {"refs/tags/v1", signature.ModeTagAndCommit, atoll.ReasonSignerUntrusted, true},
		"a commit":           {"refs/tags/v1", signature.ModeCommit, atoll.ReasonSignatureMissing, false},
		"a branch":           {"refs/heads/v1", signature.ModeTag, atoll.ReasonSignatureMissing, false},
		"files that are bad": {"refs/tags/v1", signature.ModeTag, atoll.ReasonContentInvalid, false},
	} {
		s := &v1alpha1.Source{}
		setSourceCondition(s, v1alpha1.SourceRendered, metav1.ConditionFalse, c.reason, "bad")
		if got := waitsForTag(s, c.ref, &fetch.Verification{Mode: c.mode}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if waitsForTag(s, c.ref, nil) {
			t.Errorf("%s: without verify", name)
		}
	}
}
