package changes

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// Place is where the content of a Repository is, and how the hub gets it.
type Place struct {
	// Type is the name of the field in spec that states it.
	Type      string
	URL       string
	SecretRef *v1alpha1.RepositorySecretRef
	CABundle  string
	// TokenHost is the host of the tokens of a registry, where a person stated it.
	TokenHost string
}

// placeType is one type of Repositories.
type placeType struct {
	name string
	// find returns the place that a spec states; false where it states another type.
	find func(*v1alpha1.RepositorySpec) (Place, bool)
	// ref returns what of a Repository of the type a Source reads; empty where the Source states a ref of another type.
	ref func(v1alpha1.SourceRef) string
	// fields are those of spec.ref that such a Source states.
	fields string
	// schemes of its URLs. Credentials are sent over all of them but http.
	schemes []string
}

// placeTypes are all types of Repositories.
var placeTypes = []placeType{
	{
		name: "git", ref: refOfGit, fields: "branch, tag or commit", schemes: []string{"https", "ssh", "http"},
		find: func(s *v1alpha1.RepositorySpec) (Place, bool) {
			if s.Git == nil {
				return Place{}, false
			}
			return Place{URL: s.Git.URL, SecretRef: s.Git.SecretRef, CABundle: s.Git.CABundle}, true
		},
	},
	{
		name: "helm", ref: refOfChart, fields: "chart and version", schemes: []string{"https", "oci", "http"},
		find: func(s *v1alpha1.RepositorySpec) (Place, bool) {
			if s.Helm == nil {
				return Place{}, false
			}
			return Place{URL: s.Helm.URL, SecretRef: s.Helm.SecretRef, CABundle: s.Helm.CABundle, TokenHost: s.Helm.TokenHost}, true
		},
	},
	{
		name: "oci", ref: refOfArtifact, fields: "tag, digest or version", schemes: []string{"oci"},
		find: func(s *v1alpha1.RepositorySpec) (Place, bool) {
			if s.OCI == nil {
				return Place{}, false
			}
			return Place{URL: s.OCI.URL, SecretRef: s.OCI.SecretRef, CABundle: s.OCI.CABundle, TokenHost: s.OCI.TokenHost}, true
		},
	},
}

// PlaceOf returns where the content of a Repository is. The API lets a spec state one type.
func PlaceOf(s *v1alpha1.RepositorySpec) Place {
	for _, t := range placeTypes {
		if p, ok := t.find(s); ok {
			p.Type = t.name
			return p
		}
	}
	return Place{}
}

// UsesSSH reports whether the place is read over SSH, by a key and known hosts.
func (p Place) UsesSSH() bool { return p.usesScheme("ssh") }

// UsesRegistry reports whether the place is in an OCI registry.
func (p Place) UsesRegistry() bool { return p.usesScheme("oci") }

func (p Place) usesScheme(scheme string) bool {
	u, err := url.Parse(p.URL)
	return err == nil && u.Scheme == scheme
}

// VerificationModes returns what can be signed at the place. The first one is the default of atoll.
func (p Place) VerificationModes() []v1alpha1.VerificationMode {
	switch {
	case p.Type == "git":
		return []v1alpha1.VerificationMode{v1alpha1.VerifyCommit, v1alpha1.VerifyTag, v1alpha1.VerifyTagAndCommit}
	case p.Type == "helm" && p.UsesRegistry():
		return []v1alpha1.VerificationMode{v1alpha1.VerifyArtifact, v1alpha1.VerifyProvenance}
	case p.Type == "helm":
		return []v1alpha1.VerificationMode{v1alpha1.VerifyProvenance}
	case p.Type == "oci":
		return []v1alpha1.VerificationMode{v1alpha1.VerifyArtifact}
	}
	return nil
}

// scpForm is the short form of a repository over SSH: USER@HOST:PATH.
var scpForm = regexp.MustCompile(`^([A-Za-z0-9._-]+)@([A-Za-z0-9.-]+):([^:\s][^\s]*)$`)

// ConvertShortForm returns the URL of a repository in the short form USER@HOST:PATH; false for another text. Servers such as
// GitHub take the path as one from the root.
func ConvertShortForm(text string) (string, bool) {
	m := scpForm.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	u := url.URL{Scheme: "ssh", User: url.User(m[1]), Host: m[2], Path: "/" + strings.TrimPrefix(m[3], "/")}
	return u.String(), true
}

// Schemes returns the schemes that URLs of the place may have.
func (p Place) Schemes() []string { return p.typeOf().schemes }

// typeOf returns the type of the place.
func (p Place) typeOf() placeType {
	i := slices.IndexFunc(placeTypes, func(t placeType) bool { return t.name == p.Type })
	if i < 0 {
		return placeType{ref: func(v1alpha1.SourceRef) string { return "" }}
	}
	return placeTypes[i]
}

// RefOf returns what of the place a Source reads. The error is a *Failure, where the Source states a ref of another type.
func (p Place) RefOf(s *v1alpha1.Source) (string, error) {
	return p.ResolveRef(s.Spec.Ref, s.Spec.Repository, "spec.ref")
}

// ResolveRef returns what of the place a ref names. The error is a *Failure, where the ref is one of another type; it names the Repository
// and the field of the ref.
func (p Place) ResolveRef(of v1alpha1.SourceRef, repository, field string) (string, error) {
	t := p.typeOf()
	if ref := t.ref(of); ref != "" {
		return ref, nil
	}
	return "", render.NewFailure(atoll.ReasonRefUnsupported, "the Repository %s is of the type %s; state %s in %s", repository, p.Type, t.fields, field)
}

// refOfGit returns the ref as git has it, or the hash of a commit.
func refOfGit(r v1alpha1.SourceRef) string {
	switch {
	case r.Branch != "":
		return "refs/heads/" + r.Branch
	case r.Tag != "":
		return "refs/tags/" + r.Tag
	}
	return r.Commit
}

// refOfChart returns the chart, and the versions of it that the Source takes.
func refOfChart(r v1alpha1.SourceRef) string {
	if r.Chart == "" {
		return ""
	}
	return r.Chart + "@" + r.Version
}

// refOfArtifact returns the tag, the digest or the versions that the Source takes.
func refOfArtifact(r v1alpha1.SourceRef) string {
	switch {
	case r.Chart != "":
		return ""
	case r.Tag != "":
		return "tag@" + r.Tag
	case r.Digest != "":
		return "digest@" + r.Digest
	case r.Version != "":
		return "version@" + r.Version
	}
	return ""
}

const digestPrefix = "sha256:"

// ShortenRevision returns the first 12 digits of a commit, or the version of a chart or the tag of an artifact with those of its digest.
func ShortenRevision(revision string) string {
	named, digest, hasName := strings.Cut(revision, "@")
	if !hasName {
		digest = strings.TrimPrefix(revision, digestPrefix)
		return digest[:min(12, len(digest))]
	}
	if _, version, isChart := strings.Cut(named, ":"); isChart {
		named = version
	}
	digest = strings.TrimPrefix(digest, digestPrefix)
	return named + "@" + digest[:min(12, len(digest))]
}

// DescribeRevision returns a revision for people, such as "commit 1f0c9d2e7ab4".
func DescribeRevision(revision string) string {
	return RevisionNoun(revision) + " " + ShortenRevision(revision)
}

// RevisionNoun returns what a revision is: a commit, or the version of a chart or of an artifact.
func RevisionNoun(revision string) string {
	if strings.Contains(revision, "@") || strings.HasPrefix(revision, digestPrefix) {
		return "version"
	}
	return "commit"
}
