package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/policy"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"atoll.dev/atoll/internal/fleetview"
)

// subresourceStorage serves a part of an object that is changed by itself.
type subresourceStorage struct {
	rest.Patcher
	objects *objectStorage
	name    string // of the subresource
	// refused is the reason why it is changed only in the member; empty: it is changed there.
	refused string
	// lacks is the missing part of a template, for the error; empty: it has the part.
	lacks string
}

// Destroy is upstream's to do.
func (p *subresourceStorage) Destroy() {}

// GetResetFields returns the fields that upstream does not let the part change.
func (p *subresourceStorage) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s, ok := p.Patcher.(rest.ResetFieldsStrategy); ok {
		return s.GetResetFields()
	}
	return nil
}

// scaling is a part that is of a kind of its own.
type scaling struct {
	subresourceStorage
	rest.GroupVersionKindProvider
}

// Get returns what the part is of.
func (p *subresourceStorage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	at, err := p.objects.findUnstoredObject(ctx, name, false)
	switch {
	case err != nil:
		return nil, err
	case at == nil:
		return p.Patcher.Get(ctx, name, options)
	case p.name == scale:
		return nil, p.notChangeableError(name, at.member)
	}
	return p.objects.getFromMember(ctx, at)
}

// Update updates it, in the member where it is.
func (p *subresourceStorage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, forceCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	at, err := p.objects.findUnstoredObject(ctx, name, true)
	switch {
	case err != nil:
		return nil, false, err
	case at != nil && p.refused != "":
		return nil, false, p.notChangeableError(name, at.member)
	case at != nil:
		obj, err := p.objects.changeMemberObject(ctx, memberObjectChange{at: at, subresource: p.name, info: info, validate: update, options: options})
		return obj, false, err
	case p.lacks != "":
		if _, err := p.objects.Store.Get(ctx, name, &metav1.GetOptions{}); err != nil {
			return nil, false, err
		}
		return nil, false, nothingRunsError(request.NamespaceValue(ctx), name, p.lacks)
	}
	return p.Patcher.Update(ctx, name, info, create, update, forceCreate, options)
}

// notChangeableError returns the error of an object that is not to be changed.
func (p *subresourceStorage) notChangeableError(name string, m *member) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: p.objects.kind.Group, Resource: p.objects.kind.resource + "/" + p.name}, name,
		fmt.Errorf("it runs in cluster %s, %s", m.Name, p.refused))
}

// ConvertToTable gives upstream's table, or that of the object.
func (p *subresourceStorage) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	if t, ok := p.Patcher.(rest.TableConvertor); ok {
		return t.ConvertToTable(ctx, obj, options)
	}
	return p.objects.ConvertToTable(ctx, obj, options)
}

const scale = "scale"

// evictions of pods.
type evictions struct {
	*podstore.EvictionREST
	pods *objectStorage
}

// Create creates an eviction, in the member where the pod runs.
func (e *evictions) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	at, err := e.pods.findUnstoredObject(ctx, name, true)
	if err != nil {
		return nil, err
	}
	if at == nil {
		return e.EvictionREST.Create(ctx, name, obj, validate, options)
	}
	asked, ok := obj.(*policy.Eviction)
	if !ok || asked.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	namespace := request.NamespaceValue(ctx)
	if _, err := e.pods.getFromMember(ctx, at); err != nil {
		return nil, err
	}
	if err := refuseEviction(at.Cluster, name); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(fleetview.WithMemberWrite(ctx), obj); err != nil {
			return nil, err
		}
	}
	body, err := evictionBody(namespace, at.own, asked.DeleteOptions, options)
	if err != nil {
		return nil, err
	}
	return e.pods.fleet.requestAsUser(ctx, at.member, userRequest{method: http.MethodPost, path: e.pods.kind.memberPath(namespace, at.own) + "/eviction", kind: runtime.ContentTypeJSON, body: body})
}

// evictionBody returns an eviction of a pod by its name in a member.
func evictionBody(namespace, own string, deletion *metav1.DeleteOptions, options *metav1.CreateOptions) ([]byte, error) {
	there := policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: own}, DeleteOptions: deletion,
	}
	if options != nil && len(options.DryRun) > 0 {
		if there.DeleteOptions == nil {
			there.DeleteOptions = &metav1.DeleteOptions{}
		}
		there.DeleteOptions.DryRun = options.DryRun
	}
	body, err := json.Marshal(there)
	if err != nil {
		return nil, fmt.Errorf("write an eviction: %w", err)
	}
	return body, nil
}
