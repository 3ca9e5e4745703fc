package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/commitstatus"
)

// validateRepository refuses a Repository that the hub cannot read, content that the writer may not let Sources apply,
// and credentials that the writer may not read: the writer chooses the host to which the hub sends them.
func (p *AdmissionPlugin) validateRepository(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.Repository](a)
	if err != nil {
		return err
	}
	place := changes.PlaceOf(&now.Spec)
	at := field.NewPath("spec", place.Type)
	if errs := append(checkRepositoryURL(place, at), checkTokenHost(place, at)...); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if v := now.Spec.Verify; v != nil && !slices.Contains(place.VerificationModes(), v.Mode) {
		return refuseFields(a, atoll.ReasonInvalidField, field.NotSupported(field.NewPath("spec", "verify", "mode"), v.Mode, place.VerificationModes()))
	}
	if w := now.Spec.Webhook; w != nil && (before == nil || !apiequality.Semantic.DeepEqual(before.Spec.Webhook, w)) {
		if err := p.requireReadableSecret(ctx, a, "spec.webhook.secretRef", w.SecretRef.Name); err != nil {
			return err
		}
	}
	if err := p.validateCommitStatus(ctx, a, now, before); err != nil {
		return err
	}
	return p.validateContent(ctx, a, now, before)
}

// validateCommitStatus refuses statuses of commits for what is no git repository, and a token that the writer may not read.
func (p *AdmissionPlugin) validateCommitStatus(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Repository) error {
	c := now.Spec.CommitStatus
	if c == nil {
		return nil
	}
	if err := commitstatus.CheckRepository(&now.Spec); err != nil {
		return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(field.NewPath("spec", "commitStatus"), field.OmitValueType{}, err.Error()))
	}
	// The host and the CAs of the repository decide which server gets the token.
	if before != nil && apiequality.Semantic.DeepEqual(before.Spec.CommitStatus, c) && apiequality.Semantic.DeepEqual(changes.PlaceOf(&before.Spec), changes.PlaceOf(&now.Spec)) {
		return nil
	}
	return p.requireReadableSecret(ctx, a, "spec.commitStatus.secretRef", c.SecretRef.Name)
}

// validateContent refuses another place, and another rule of what must be signed there, by a writer that may not choose the content or
// read the Secrets.
func (p *AdmissionPlugin) validateContent(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Repository) error {
	place, verify := changes.PlaceOf(&now.Spec), now.Spec.Verify
	samePlace := before != nil && apiequality.Semantic.DeepEqual(changes.PlaceOf(&before.Spec), place)
	sameVerify := before != nil && apiequality.Semantic.DeepEqual(before.Spec.Verify, verify)
	if samePlace && sameVerify {
		return nil
	}
	if err := p.validateContentOfSources(ctx, a, now); err != nil {
		return err
	}
	if verify != nil && !sameVerify {
		if err := p.requireReadableSecret(ctx, a, "spec.verify.secretRef", verify.SecretRef.Name); err != nil {
			return err
		}
	}
	if place.SecretRef == nil || samePlace {
		return nil
	}
	return p.requireReadableSecret(ctx, a, "spec."+place.Type+".secretRef", place.SecretRef.Name)
}

// requireReadableSecret refuses a writer that may not get the Secret that a field names.
func (p *AdmissionPlugin) requireReadableSecret(ctx context.Context, a admission.Attributes, path, name string) error {
	return p.requireReadableSecretIn(ctx, a, path, types.NamespacedName{Namespace: a.GetNamespace(), Name: name})
}

func (p *AdmissionPlugin) requireReadableSecretIn(ctx context.Context, a admission.Attributes, path string, secret types.NamespacedName) error {
	name, need := secret.Name, requiredRead{resource: schema.GroupResource{Resource: "secrets"}, namespace: secret.Namespace, name: secret.Name}
	if p.isAllowed(ctx, a.GetUserInfo(), "get", need) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%s: the right to get the Secret %q is needed, which %q lacks", path, name, a.GetUserInfo().GetName()))
}

// validateContentOfSources refuses a writer that may not act as the accounts by which Sources apply what the
// Repository has: the writer chooses the content.
func (p *AdmissionPlugin) validateContentOfSources(ctx context.Context, a admission.Attributes, repo *v1alpha1.Repository) error {
	hub, _ := p.currentHub()
	accounts := []string{""} // all accounts, until the Sources are known
	if hub.Sources != nil {
		accounts = nil
		for _, s := range hub.Sources.InNamespace(repo.Namespace) {
			if s.Spec.Repository == repo.Name {
				accounts = append(accounts, accountOfSource(s))
			}
		}
		accounts = append(accounts, accountsOfReaders(hub.SourceSets, repo)...)
		if len(accounts) == 0 {
			accounts = []string{v1alpha1.DefaultSourceAccount}
		}
	}
	slices.Sort(accounts)
	for _, account := range slices.Compact(accounts) {
		need := requiredRead{resource: schema.GroupResource{Resource: "serviceaccounts"}, namespace: repo.Namespace, name: account}
		if p.isAllowed(ctx, a.GetUserInfo(), "impersonate", need) {
			continue
		}
		by := fmt.Sprintf("ServiceAccount %q: the verb impersonate on it", account)
		if account == "" {
			by = "ServiceAccounts that are not known yet, because the hub has just been started: the verb impersonate on all of the namespace"
		}
		return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec.%s: Sources apply the content by the rights of %s is needed, which %q lacks", changes.PlaceOf(&repo.Spec).Type, by, a.GetUserInfo().GetName()))
	}
	return nil
}

// checkRepositoryURL returns why a URL is none that the hub reads.
func checkRepositoryURL(place changes.Place, at *field.Path) (errs field.ErrorList) {
	text, schemes := place.URL, place.Schemes()
	refuse := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child("url"), field.OmitValueType{}, why)}
	}
	u, err := url.Parse(text)
	full := longFormOf(place)
	switch {
	case full != "":
		return refuse("is the short form of ssh; write " + full)
	case err != nil || strings.ContainsFunc(text, phrase.IsSpaceOrControl):
		return refuse("is no URL")
	case !slices.Contains(schemes, u.Scheme):
		return refuse("must begin with " + strings.Join(schemes, ":// or ") + "://; the hub reads no files and runs no helpers")
	case u.Hostname() == "":
		return refuse("names no host")
	case strings.Contains(u.Host, "%"):
		return refuse("may not have a zone or an escape in its host")
	case u.Scheme == "ssh":
		return checkSSH(place, u, at)
	case u.User != nil:
		return refuse("may not have credentials; name a Secret in secretRef")
	case u.RawQuery+u.Fragment != "":
		return refuse("may not have a query or a fragment")
	case u.Scheme == "http" && place.SecretRef != nil:
		return field.ErrorList{field.Forbidden(at.Child("secretRef"), "credentials are sent over TLS alone: not to http://")}
	}
	return nil
}

// tokenHostForm is a host, with a port where it is not that of HTTPS.
var tokenHostForm = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// checkTokenHost returns why the hub sends no credentials to a stated token host.
func checkTokenHost(place changes.Place, at *field.Path) field.ErrorList {
	at = at.Child("tokenHost")
	switch {
	case place.TokenHost == "":
		return nil
	case !tokenHostForm.MatchString(place.TokenHost):
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be HOST or HOST:PORT, without a scheme and a path")}
	case !place.UsesRegistry():
		return field.ErrorList{field.Forbidden(at, "is for registries: a URL that begins with oci://")}
	case place.SecretRef == nil:
		return field.ErrorList{field.Forbidden(at, "is where the hub sends the credentials of secretRef, which is not stated; without credentials tokens are read from any host")}
	}
	return nil
}

// longFormOf returns the URL of a place in the short form of SSH; empty for another one.
func longFormOf(place changes.Place) string {
	full, isShort := changes.ConvertShortForm(place.URL)
	if !isShort || !slices.Contains(place.Schemes(), "ssh") {
		return ""
	}
	return full
}

// checkSSH returns why a repository over SSH is none that the hub reads.
func checkSSH(place changes.Place, u *url.URL, at *field.Path) field.ErrorList {
	refuse := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child("url"), field.OmitValueType{}, why)}
	}
	_, hasPassword := u.User.Password()
	switch {
	case hasPassword:
		return refuse("may not have a password; name a Secret in secretRef")
	case u.User != nil && u.User.Username() == "":
		return refuse("has an empty user; write ssh://git@HOST/PATH")
	case len(u.Path) < 2:
		return refuse("names no repository; write ssh://git@HOST/PATH")
	case strings.ContainsFunc(u.User.Username()+u.Path, phrase.IsControl):
		return refuse("has a control character")
	case u.RawQuery+u.Fragment != "":
		return refuse("may not have a query or a fragment")
	case place.SecretRef == nil:
		return field.ErrorList{field.Required(at.Child("secretRef"), "name a Secret with identity, the private key, and known_hosts, by which the hub verifies the server")}
	case place.CABundle != "":
		return field.ErrorList{field.Forbidden(at.Child("caBundle"), "is for https://; a server over ssh is verified by known_hosts of the Secret")}
	}
	return nil
}

// validateSource refuses a Source that could not be honoured, and a ServiceAccount that the writer may not act as.
func (p *AdmissionPlugin) validateSource(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.Source](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	at := field.NewPath("spec", "placement")
	errs := append(checkSource(now), checkVariants(now.Spec.Variants, field.NewPath("spec", "variants"))...)
	errs = append(errs, checkSecretsOfVariants(now)...)
	if now.Spec.Placement != nil {
		errs = append(errs, policycheck.CheckPlacement(now.Spec.Placement, p.refuseUnlistedProperties(), at)...)
	}
	if len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if err := p.validateSourcePlacement(a, now, before, at); err != nil {
		return err
	}
	if before != nil && !writesByOtherRights(before, now) {
		return nil
	}
	account := accountOfSource(now)
	need := requiredRead{resource: schema.GroupResource{Resource: "serviceaccounts"}, namespace: now.Namespace, name: account}
	if p.isAllowed(ctx, a.GetUserInfo(), "impersonate", need) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec.serviceAccountName: the Source writes by the rights of ServiceAccount %q: the verb impersonate on it is needed, which %q lacks", account, a.GetUserInfo().GetName()))
}

// validateSourcePlacement refuses names of clusters and sets outside of the namespace's sets, also in variants.
func (p *AdmissionPlugin) validateSourcePlacement(a admission.Attributes, now, before *v1alpha1.Source, at *field.Path) error {
	list := func(s *v1alpha1.Source) (out []placementReference) {
		if s == nil {
			return nil
		}
		if s.Spec.Placement != nil {
			out = placementReferences(s.Spec.Placement, at)
		}
		return append(out, findPlacementReferences(reflect.ValueOf(s.Spec.Variants), field.NewPath("spec", "variants"))...)
	}
	return p.validatePlacementReferences(a, list(now), list(before), at)
}

// Bounds of the variants of a Source. Each policy that the Source makes of them repeats the targets.
const (
	maxVariantBytes       = 256 << 10
	maxVariantTargetBytes = 16 << 10
)

// checkVariants returns the variants that could not be honoured.
func checkVariants(variants []v1alpha1.SourceVariant, at *field.Path) (errs field.ErrorList) {
	rules := make([]v1alpha1.RuleWithCluster, 0, len(variants))
	size := 0
	for i := range variants {
		v, in := &variants[i], at.Index(i)
		errs = append(errs, policycheck.CheckTarget(&v.TargetCluster, in.Child("targetCluster"))...)
		errs = append(errs, checkRepositoryPaths(v.Paths, in.Child("paths"))...)
		if v.Helm != nil {
			errs = append(errs, checkRepositoryPaths(v.Helm.ValuesFiles, in.Child("helm", "valuesFiles"))...)
			errs = append(errs, checkValuesFrom(v.Helm.ValuesFrom, in.Child("helm", "valuesFrom"))...)
			if v.Helm.Values != nil {
				size += len(v.Helm.Values.Raw)
			}
		}
		for _, p := range v.Patches {
			size += len(p.Raw)
		}
		rules = append(rules, v1alpha1.RuleWithCluster{TargetCluster: &v.TargetCluster})
	}
	if size > maxVariantBytes {
		errs = append(errs, field.TooLong(at, field.OmitValueType{}, maxVariantBytes))
	}
	if raw, err := json.Marshal(rules); err != nil || len(raw) > maxVariantTargetBytes {
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("the targets of all variants have more than %d bytes as JSON; choose clusters by labels or sets instead of names", maxVariantTargetBytes)))
	}
	if cost, over := overrides.SumExpressionCost(rules); over {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("their expressions may cost %d units together, and at most %d are allowed", cost, overrides.MaxRowCost)))
	}
	return errs
}

// writesByOtherRights reports whether an update lets the Source write anything else by the rights of its account.
func writesByOtherRights(before, now *v1alpha1.Source) bool {
	old, is := before.Spec.DeepCopy(), now.Spec.DeepCopy()
	old.Suspend, old.SyncRequest, is.Suspend, is.SyncRequest = false, nil, false, nil
	return !apiequality.Semantic.DeepEqual(old, is)
}

func accountOfSource(s *v1alpha1.Source) string {
	if s.Spec.ServiceAccountName != "" {
		return s.Spec.ServiceAccountName
	}
	return v1alpha1.DefaultSourceAccount
}

// checkSource returns the fields that could not be honoured.
func checkSource(s *v1alpha1.Source) (errs field.ErrorList) {
	at := field.NewPath("spec")
	errs = append(errs, checkSourceFiles(s, at)...)
	errs = append(errs, checkSourceBuild(s.Spec.Build, at.Child("build"))...)
	for name, value := range map[string]string{"branch": s.Spec.Ref.Branch, "tag": s.Spec.Ref.Tag} {
		if value != "" && !isRefName(value) {
			errs = append(errs, field.Invalid(at.Child("ref", name), value, "is no name that git allows"))
		}
	}
	if v := s.Spec.Ref.Version; v != "" {
		if _, err := semver.NewConstraint(v); err != nil {
			errs = append(errs, field.Invalid(at.Child("ref", "version"), v, "is neither a version nor a range of versions"))
		}
	}
	if ns := s.Spec.TargetNamespace; ns != "" {
		for _, why := range validation.IsDNS1123Label(ns) {
			errs = append(errs, field.Invalid(at.Child("targetNamespace"), ns, why))
		}
	}
	for _, why := range validation.IsDNS1123Subdomain(accountOfSource(s)) {
		errs = append(errs, field.Invalid(at.Child("serviceAccountName"), s.Spec.ServiceAccountName, why))
	}
	for _, why := range validation.IsValidLabelValue(s.Name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, "is the value of a label: "+why))
	}
	return errs
}

// checkSourceFiles returns the paths and patterns that could not be honoured.
func checkSourceFiles(s *v1alpha1.Source, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, checkRepositoryPaths(s.Spec.Paths, at.Child("paths"))...)
	for i, pattern := range s.Spec.Exclude {
		if _, err := path.Match(pattern, ""); err != nil {
			errs = append(errs, field.Invalid(at.Child("exclude").Index(i), pattern, "is no pattern"))
		} else if why := checkRepositoryPath(pattern); why != "" {
			errs = append(errs, field.Invalid(at.Child("exclude").Index(i), pattern, why))
		}
	}
	return errs
}

// checkSourceBuild returns the fields of a build that could not be honoured.
func checkSourceBuild(b *v1alpha1.SourceBuild, at *field.Path) (errs field.ErrorList) {
	if b == nil || b.Helm == nil {
		return nil
	}
	at = at.Child("helm")
	if name := b.Helm.ReleaseName; name != "" {
		for _, why := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(at.Child("releaseName"), name, why))
		}
	}
	errs = append(errs, checkRepositoryPaths(b.Helm.ValuesFiles, at.Child("valuesFiles"))...)
	errs = append(errs, checkValuesFrom(b.Helm.ValuesFrom, at.Child("valuesFrom"))...)
	for i, version := range b.Helm.APIVersions {
		if strings.ContainsFunc(version, phrase.IsSpaceOrControl) {
			errs = append(errs, field.Invalid(at.Child("apiVersions").Index(i), version, "is no version of an API"))
		}
	}
	if v := b.Helm.Values; v != nil && len(v.Raw) > maxInlineValues {
		errs = append(errs, field.TooLong(at.Child("values"), field.OmitValueType{}, maxInlineValues))
	}
	return errs
}

// checkValuesFrom returns the references that can name no key.
func checkValuesFrom(references []v1alpha1.ValuesReference, at *field.Path) (errs field.ErrorList) {
	for i, r := range references {
		for _, why := range validation.IsDNS1123Subdomain(r.Name) {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), r.Name, why))
		}
		if r.Key == "" {
			continue // the default
		}
		for _, why := range validation.IsConfigMapKey(r.Key) {
			errs = append(errs, field.Invalid(at.Index(i).Child("key"), r.Key, why))
		}
	}
	return errs
}

// checkSecretsOfVariants refuses values of Secrets in content that has variants: what they differ by is in OverridePolicies, which have
// more readers than Secrets.
func checkSecretsOfVariants(s *v1alpha1.Source) (errs field.ErrorList) {
	isRendered := func(v v1alpha1.SourceVariant) bool { return !v.Exclude }
	if !slices.ContainsFunc(s.Spec.Variants, isRendered) || !changes.ReadsSecrets(s) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "variants"),
		"the Source reads values of Secrets, and what variants differ by is in OverridePolicies, which have more readers; "+
			"state valuesFrom of Secrets in a Source without variants other than exclude: true")}
}

// maxInlineValues is the most bytes of values in a Source, whose status needs its part of what the store takes.
const maxInlineValues = 128 << 10

// checkRepositoryPaths returns the paths that could lead out of a repository.
func checkRepositoryPaths(paths []string, at *field.Path) (errs field.ErrorList) {
	for i, name := range paths {
		if why := checkRepositoryPath(name); why != "" {
			errs = append(errs, field.Invalid(at.Index(i), name, why))
		}
	}
	return errs
}

// checkRepositoryPath returns why a path could lead out of a repository; empty when it does not.
func checkRepositoryPath(dir string) string {
	switch {
	case strings.HasPrefix(dir, "/"):
		return "must be relative to the root of the repository"
	case slices.Contains(strings.Split(dir, "/"), ".."):
		return "may not contain .."
	case strings.ContainsFunc(dir, func(r rune) bool { return phrase.IsControl(r) || r == '\\' }):
		return "may not contain control characters or \\"
	}
	return ""
}

// isRefName reports whether git allows the name of a branch or a tag.
func isRefName(name string) bool {
	if strings.ContainsFunc(name, func(r rune) bool { return phrase.IsSpaceOrControl(r) || strings.ContainsRune(`~^:?*[\`, r) }) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.Contains(name, "..") && !strings.Contains(name, "@{") && !strings.HasSuffix(name, ".") && !strings.HasPrefix(name, "-") && name != "@"
}
