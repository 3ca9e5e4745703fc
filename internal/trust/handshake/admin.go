package handshake

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust"
)

// Admin performs an administrator's operations on the hub, with the rights of its client.
type Admin struct {
	Hub dynamic.Interface
}

var (
	clusters = v1alpha1.GroupVersion.WithResource("clusters")
	secrets  = corev1.SchemeGroupVersion.WithResource("secrets")
	requests = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
)

// toUnstructured encodes an object for the dynamic client.
func toUnstructured(o any, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode a %s: %w", gvk.Kind, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// CreateToken creates and stores a join token. Only the result holds the secret.
func (a Admin) CreateToken(ctx context.Context, spec TokenSpec, now time.Time) (trust.Token, error) {
	t := trust.NewToken()
	secret, err := NewTokenSecret(t, spec, now)
	if err != nil {
		return trust.Token{}, err
	}
	u, err := toUnstructured(secret, corev1.SchemeGroupVersion.WithKind("Secret"))
	if err != nil {
		return trust.Token{}, err
	}
	if _, err := a.Hub.Resource(secrets).Namespace(atoll.SystemNamespace).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return trust.Token{}, fmt.Errorf("store the join token on the hub: %w", err)
	}
	return t, nil
}

// ListTokens lists the hub's tokens. Damaged ones are left out.
func (a Admin) ListTokens(ctx context.Context) ([]StoredToken, error) {
	list, err := a.Hub.Resource(secrets).Namespace(atoll.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: LabelToken})
	if err != nil {
		return nil, fmt.Errorf("list join tokens: %w", err)
	}
	var out []StoredToken
	for i := range list.Items {
		var secret corev1.Secret
		if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &secret) != nil {
			continue
		}
		if t, err := ParseTokenSecret(&secret); err == nil {
			out = append(out, t)
		}
	}
	return out, nil
}

// DeleteToken deletes a token. Clusters that joined with it stay.
func (a Admin) DeleteToken(ctx context.Context, id string) error {
	if err := a.Hub.Resource(secrets).Namespace(atoll.SystemNamespace).Delete(ctx, TokenSecretName(id), metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete join token %s: %w", id, err)
	}
	return nil
}

// AcceptCluster accepts a Cluster: it sets spec.accepted to true and approves the request of its agent.
// keyHashes lists the approved keys, for people to compare with those that the agent prints. It
// is empty when no request was pending.
func (a Admin) AcceptCluster(ctx context.Context, name string) (keyHashes []string, err error) {
	cluster, err := a.Hub.Resource(clusters).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find cluster %s: %w", name, err)
	}
	waiting, err := a.undecidedRequests(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if err := a.setAccepted(ctx, cluster, true); err != nil {
		return nil, err
	}
	for i := range waiting {
		r, err := trust.ParseCertificateRequestPEM(waiting[i].Spec.Request)
		if err != nil {
			return keyHashes, fmt.Errorf("request %s of cluster %s: %w", waiting[i].Name, name, err)
		}
		if err := a.decideRequest(ctx, &waiting[i], certificatesv1.CertificateApproved, "accepted with its cluster"); err != nil {
			return keyHashes, err
		}
		keyHashes = append(keyHashes, r.KeyHash)
	}
	return keyHashes, nil
}

// DenyCluster denies a Cluster: it sets spec.accepted to false, which disconnects the agent at
// once, and denies pending requests.
func (a Admin) DenyCluster(ctx context.Context, name string) error {
	cluster, err := a.Hub.Resource(clusters).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find cluster %s: %w", name, err)
	}
	if err := a.setAccepted(ctx, cluster, false); err != nil {
		return err
	}
	waiting, err := a.undecidedRequests(ctx, cluster)
	if err != nil {
		return err
	}
	for i := range waiting {
		if err := a.decideRequest(ctx, &waiting[i], certificatesv1.CertificateDenied, "denied with its cluster"); err != nil {
			return err
		}
	}
	return nil
}

// setAccepted changes only the Cluster that was read: a Cluster that was created again under the
// same name is not accepted by mistake.
func (a Admin) setAccepted(ctx context.Context, cluster *unstructured.Unstructured, accepted bool) error {
	if was, _, err := unstructured.NestedBool(cluster.Object, "spec", "accepted"); err == nil && was == accepted {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": cluster.GetUID(), "resourceVersion": cluster.GetResourceVersion()},
		"spec":     map[string]any{"accepted": accepted},
	})
	if err != nil {
		return err
	}
	_, err = a.Hub.Resource(clusters).Patch(ctx, cluster.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set spec.accepted of cluster %s to %t: %w", cluster.GetName(), accepted, err)
	}
	return nil
}

// undecidedRequests lists the Cluster's requests that have no decision.
func (a Admin) undecidedRequests(ctx context.Context, cluster *unstructured.Unstructured) ([]certificatesv1.CertificateSigningRequest, error) {
	list, err := a.Hub.Resource(requests).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{LabelCluster: cluster.GetName()}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list certificate requests of cluster %s: %w", cluster.GetName(), err)
	}
	var out []certificatesv1.CertificateSigningRequest
	for i := range list.Items {
		var r certificatesv1.CertificateSigningRequest
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &r); err != nil {
			return nil, fmt.Errorf("read certificate request %s: %w", list.Items[i].GetName(), err)
		}
		if r.Spec.SignerName == SignerName && r.Annotations[AnnotationUID] == string(cluster.GetUID()) && DecisionOn(&r) == Undecided {
			out = append(out, r)
		}
	}
	return out, nil
}

func (a Admin) decideRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest, verdict certificatesv1.RequestConditionType, message string) error {
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: verdict, Status: corev1.ConditionTrue, Reason: "Atoll" + string(verdict), Message: message,
	})
	u, err := toUnstructured(r, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	if err != nil {
		return err
	}
	_, err = a.Hub.Resource(requests).Update(ctx, u, metav1.UpdateOptions{}, "approval")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("decide on certificate request %s: %w", r.Name, err)
	}
	return nil
}
