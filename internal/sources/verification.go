package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/signature"
)

// readVerification returns what of a Repository must be signed, and the trusted keys; nil where it states none. Without a key nothing
// is read, so that a Secret that is gone lets nothing pass.
func (r *Reconciler) readVerification(ctx context.Context, repo *v1alpha1.Repository) (*fetch.Verification, error) {
	stated := repo.Spec.Verify
	if stated == nil {
		return nil, nil
	}
	name := stated.SecretRef.Name
	var secret corev1.Secret
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: repo.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, &fetch.Failure{Reason: atoll.ReasonTrustedKeysMissing, Message: fmt.Sprintf("the Secret %s of spec.verify does not exist in the namespace", name)}
	}
	if err != nil {
		return nil, fmt.Errorf("read the trusted keys of a Repository: %w", err)
	}
	size := 0
	for _, text := range secret.Data {
		size += len(text)
	}
	switch {
	case size == 0:
		return nil, &fetch.Failure{Reason: atoll.ReasonTrustedKeysMissing, Message: fmt.Sprintf("the Secret %s of spec.verify has no key", name)}
	case size > signature.MaxKeyBytes:
		return nil, &fetch.Failure{Reason: atoll.ReasonTrustedKeysMissing, Message: fmt.Sprintf("the Secret %s of spec.verify has more than %d bytes", name, signature.MaxKeyBytes)}
	}
	return &fetch.Verification{Mode: signature.Mode(stated.Mode), Keys: secret.Data}, nil
}

// digestVerification returns a digest of what must be signed and by which keys; empty for nil. Content that was considered by another
// one is considered again.
func digestVerification(v *fetch.Verification) string {
	if v == nil {
		return ""
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sources: trusted keys cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// waitsForTag reports whether a Source reads a tag whose signature was refused. The tag can be signed again for the same commit, so the
// commit does not tell that nothing moved.
func waitsForTag(s *v1alpha1.Source, ref string, v *fetch.Verification) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceRendered)
	return v != nil && v.Mode.NeedsTag() && strings.HasPrefix(ref, "refs/tags/") && c != nil && c.Status == metav1.ConditionFalse && isOfSignature(atoll.Reason(c.Reason))
}

// maySignLater reports whether a refused revision can be signed after the hub has read it, so that it is not considered. cosign signs an artifact
// after its push, and the digest stays the same.
func maySignLater(why atoll.Reason, v *fetch.Verification) bool {
	return v != nil && v.Mode.CanFollow() && isOfSignature(why)
}

// isOfSignature reports whether a reason is of a signature.
func isOfSignature(why atoll.Reason) bool {
	return slices.Contains([]atoll.Reason{atoll.ReasonSignatureMissing, atoll.ReasonSignatureInvalid, atoll.ReasonSignerUntrusted}, why)
}

// setVerified notes the signature of content that passed.
func setVerified(now *v1alpha1.Source, c fetch.Content, repo *v1alpha1.Repository) {
	switch {
	case repo.Spec.Verify == nil:
		now.Status.Verified = nil
	case c.Signer != "":
		now.Status.Verified = &v1alpha1.SourceVerified{Commit: c.Commit, Signer: c.Signer}
	}
}
