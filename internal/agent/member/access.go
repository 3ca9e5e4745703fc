package member

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Access is a right that a ServiceAccount may have.
type Access struct {
	// Account is the ServiceAccount as NAMESPACE/NAME. It does not have to exist.
	Account string
	// Verb of the member's API, such as "patch".
	Verb                     string
	Group, Version, Resource string
	// Namespace and Name of the object; the namespace is empty for cluster-scoped ones.
	Namespace, Name string
}

// subjectAccessReviews as a resource, which every member serves.
var subjectAccessReviews = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")

// ReviewAccess reports whether the member's API allows the access. It sends the review as the agent
// itself, also in a context of WithServiceAccount. An error means that the API did not answer, or that the
// agent may not send reviews.
func (c *Client) ReviewAccess(ctx context.Context, a Access) (allowed bool, err error) {
	namespace, name, qualified := strings.Cut(a.Account, "/")
	if !qualified {
		return false, fmt.Errorf("%q is not NAMESPACE/NAME of a ServiceAccount", a.Account)
	}
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   serviceAccountUser(namespace, name),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name,
		},
	}}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SubjectAccessReview"
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&review)
	if err != nil {
		return false, fmt.Errorf("encode the question for the rights of ServiceAccount %s: %w", a.Account, err)
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, accountKey{}, nil), RequestTimeout)
	defer cancel()
	answer, err := c.dynamic.Resource(subjectAccessReviews).Create(ctx, &unstructured.Unstructured{Object: body}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, _, _ = unstructured.NestedBool(answer.Object, "status", "allowed")
	denied, _, _ := unstructured.NestedBool(answer.Object, "status", "denied")
	return allowed && !denied, nil
}
