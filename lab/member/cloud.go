package member

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

const (
	provisionerName = "lab.atoll.dev/nowhere"
	// provisionerAnnotation is set on a claim by the volume binder when its class names a
	// provisioner outside the controller manager: this one.
	provisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	provisionedAnnotation = "pv.kubernetes.io/provisioned-by"
)

// ensureStorageClass creates the default StorageClass unless it exists.
func ensureStorageClass(ctx context.Context, client kubernetes.Interface) error {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "standard",
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       provisionerName,
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}
	_, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create StorageClass %s: %w", class.Name, err)
	}
	return nil
}

// fakeCloud acts as volume provisioner, load balancer and ingress controller. It retries
// failures with a growing delay, on the then present object.
type fakeCloud struct {
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[cloudItem]
	stores map[string]cache.Store
}

type cloudItem struct{ kind, key string }

// startFakeCloud starts one worker, which stops with ctx.
func startFakeCloud(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &fakeCloud{
		client: client,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cloudItem](50*time.Millisecond, 10*time.Second)),
		stores: map[string]cache.Store{},
	}
	for kind, informer := range map[string]cache.SharedIndexInformer{
		"PersistentVolumeClaim": factory.Core().V1().PersistentVolumeClaims().Informer(),
		"PersistentVolume":      factory.Core().V1().PersistentVolumes().Informer(),
		"Service":               factory.Core().V1().Services().Informer(),
		"Ingress":               factory.Networking().V1().Ingresses().Informer(),
	} {
		c.stores[kind] = informer.GetStore()
		enqueue := func(obj any) {
			if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
				c.queue.Add(cloudItem{kind, key})
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
		})
		utilruntime.Must(err)
	}
	factory.Start(ctx.Done())
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	go c.processQueue(ctx)
}

func (c *fakeCloud) processQueue(ctx context.Context) {
	for {
		item, stop := c.queue.Get()
		if stop {
			return
		}
		err := c.syncItem(ctx, item)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			utilruntime.HandleErrorWithContext(ctx, err, "Lab cloud will try again", "kind", item.kind, "object", item.key)
		}
		if err != nil {
			c.queue.AddRateLimited(item)
		} else {
			c.queue.Forget(item)
		}
		c.queue.Done(item)
	}
}

func (c *fakeCloud) syncItem(ctx context.Context, item cloudItem) error {
	obj, exists, err := c.stores[item.kind].GetByKey(item.key)
	if err != nil || !exists {
		return err
	}
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		return c.provisionVolume(ctx, o)
	case *corev1.PersistentVolume:
		return c.deleteReleasedVolume(ctx, o)
	case *corev1.Service:
		return c.assignServiceAddress(ctx, o)
	case *networkingv1.Ingress:
		return c.assignIngressAddress(ctx, o)
	}
	return nil
}

// provisionVolume creates the volume for an unbound claim of this provisioner; the volume
// binder binds the two.
func (c *fakeCloud) provisionVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Annotations[provisionerAnnotation] != provisionerName {
		return nil
	}
	class, err := c.client.StorageV1().StorageClasses().Get(ctx, ptr.Deref(claim.Spec.StorageClassName, ""), metav1.GetOptions{})
	if err != nil {
		return err
	}
	name := "pvc-" + string(claim.UID)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedAnnotation: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			StorageClassName:              class.Name,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere/" + name},
			},
		},
	}
	_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// deleteReleasedVolume deletes a volume of this provisioner whose claim is gone, if its
// policy demands it.
func (c *fakeCloud) deleteReleasedVolume(ctx context.Context, volume *corev1.PersistentVolume) error {
	ours := volume.Annotations[provisionedAnnotation] == provisionerName
	if !ours || volume.DeletionTimestamp != nil || volume.Status.Phase != corev1.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	return c.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(volume.UID)),
	})
}

// assignServiceAddress assigns an address to a Service of type LoadBalancer. As in a cloud, one with a loadBalancerClass is left to another controller.
func (c *fakeCloud) assignServiceAddress(ctx context.Context, service *corev1.Service) error {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Spec.LoadBalancerClass != nil || len(service.Status.LoadBalancer.Ingress) > 0 || service.DeletionTimestamp != nil {
		return nil
	}
	service = service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: madeUpAddress(string(service.UID))}}
	_, err := c.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
	return err
}

// assignIngressAddress assigns an address to an Ingress.
func (c *fakeCloud) assignIngressAddress(ctx context.Context, ingress *networkingv1.Ingress) error {
	if len(ingress.Status.LoadBalancer.Ingress) > 0 || ingress.DeletionTimestamp != nil {
		return nil
	}
	ingress = ingress.DeepCopy()
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: madeUpAddress(string(ingress.UID))}}
	_, err := c.client.NetworkingV1().Ingresses(ingress.Namespace).UpdateStatus(ctx, ingress, metav1.UpdateOptions{})
	return err
}

// madeUpAddress picks an address of 198.51.100.0/24, which is reserved for documentation
// and not routed.
func madeUpAddress(seed string) string {
	h := fnv.New32a()
	h.Write([]byte(seed))
	return fmt.Sprintf("198.51.100.%d", 1+h.Sum32()%254)
}
