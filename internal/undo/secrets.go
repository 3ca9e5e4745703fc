package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/filteredwatch"
	"atoll.dev/atoll/internal/undo/history"
	"atoll.dev/atoll/internal/wakeup"
)

// The keys of a Secret that keeps a change.
const (
	dataChange  = "change"
	dataContent = "content"
	// dataContentBytes is in the index in place of the content: its size.
	dataContentBytes = "contentBytes"
)

// encodeSecret returns the Secret that keeps a change, and the change with its size.
func encodeSecret(c *capture) (*corev1.Secret, *history.Change, error) {
	raw, err := history.EncodeChange(&c.change)
	if err != nil {
		return nil, nil, err
	}
	change, err := history.DecodeChange(c.change.ID, raw, int64(len(c.content)))
	if err != nil {
		return nil, nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: atoll.SystemNamespace, Name: c.change.ID},
		Type:       atoll.SecretTypeUndo, Immutable: new(true),
		Data: map[string][]byte{dataChange: raw, dataContent: c.content},
	}, change, nil
}

// Attach gives the Keeper the hub's tables, and a configuration by which it may write while the hub is in touch
// with its store.
func (k *Keeper) Attach(tables Tables, cfg *rest.Config) error {
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client of former contents: %w", err)
	}
	k.hub.Store(&hubAccess{tables: tables, secrets: apiSecrets{kube.CoreV1().Secrets(atoll.SystemNamespace)}, api: apiReader{kube}})
	return nil
}

// Run follows the kept changes and deletes those that expire, until ctx ends. The hub's tables are read.
func (k *Keeper) Run(ctx context.Context) error {
	hub := k.currentHub()
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: hub.secrets.WatchSecrets(),
		ObjectType:    &corev1.Secret{},
		Transform:     dropContent,
		Handler:       cache.ResourceEventHandlerFuncs{AddFunc: k.secretAdded, DeleteFunc: k.secretDeleted},
	})
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { controller.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return nil
	}
	k.mu.Lock()
	k.loaded = true
	k.mu.Unlock()
	k.runExpiry(ctx, hub)
	return nil
}

// dropContent leaves of a Secret what the index needs.
func dropContent(obj any) (any, error) {
	if s, ok := obj.(*corev1.Secret); ok {
		s.Data = map[string][]byte{dataChange: s.Data[dataChange], dataContentBytes: strconv.AppendInt(nil, int64(len(s.Data[dataContent])), 10)}
		s.ManagedFields = nil
	}
	return obj, nil
}

// secretAdded adds the change of a Secret. One that cannot be read is of no use, and is deleted.
func (k *Keeper) secretAdded(obj any) {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	contentBytes, err := strconv.ParseInt(string(s.Data[dataContentBytes]), 10, 64)
	if err != nil {
		return // dropContent did not see it
	}
	change, err := history.DecodeChange(s.Name, s.Data[dataChange], contentBytes)
	if err == nil {
		k.addChange(change)
		return
	}
	k.options.Log.Warn("a Secret of undo cannot be read, and is deleted", "secret", s.Name, "err", err)
	k.mu.Lock()
	k.doomLocked(s.Name)
	k.mu.Unlock()
	wakeup.WakeReader(k.wake)
}

func (k *Keeper) secretDeleted(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if s, ok := obj.(*corev1.Secret); ok {
		k.removeChange(s.Name)
	}
}

// apiSecrets are the Secrets of the system namespace.
type apiSecrets struct{ client typedcore.SecretInterface }

// WatchSecrets returns the source of the Secrets that keep changes.
func (s apiSecrets) WatchSecrets() cache.ListerWatcher {
	return filteredwatch.FieldSelectedSource(s.client, fields.OneTermEqualSelector("type", atoll.SecretTypeUndo).String())
}

// CreateSecret creates a Secret. One that exists already has the same change.
func (s apiSecrets) CreateSecret(ctx context.Context, secret *corev1.Secret) error {
	_, err := s.client.Create(ctx, secret, metav1.CreateOptions{FieldManager: atoll.HubFieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// GetSecret reads a Secret.
func (s apiSecrets) GetSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	return s.client.Get(ctx, name, metav1.GetOptions{})
}

// DeleteSecret deletes a Secret.
func (s apiSecrets) DeleteSecret(ctx context.Context, name string) error {
	return s.client.Delete(ctx, name, metav1.DeleteOptions{})
}

// apiReader reads of the API.
type apiReader struct{ client kubernetes.Interface }

// GetNamespaceUID implements objectReader.
func (r apiReader) GetNamespaceUID(ctx context.Context, name string) (string, error) {
	ns, err := r.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(ns.UID), nil
}

// IsDeleted implements objectReader.
func (r apiReader) IsDeleted(ctx context.Context, path, name, uid string) bool {
	var obj metav1.PartialObjectMetadata
	raw, err := r.client.CoreV1().RESTClient().Get().AbsPath(path, name).SetHeader("Accept", metadataOnly).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return true
	}
	if err != nil || json.Unmarshal(raw, &obj) != nil {
		return false
	}
	return string(obj.UID) != uid || obj.DeletionTimestamp != nil
}

const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
