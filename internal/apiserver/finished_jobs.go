package apiserver

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
)

const finishedJobsController = controllerUserPrefix + "ttl-after-finished-controller"

// addFinishedJobController deletes Jobs on the hub when spec.ttlSecondsAfterFinished has passed since they
// finished in all their clusters. A Job that has no clusters never finishes.
func (c *controllers) addFinishedJobController(ctx context.Context) error {
	_, client, _, err := c.clientsFor(finishedJobsController)
	if err != nil {
		return err
	}
	jobs := informers.NewSharedInformerFactoryWithOptions(client, controllerResync, informers.WithTransform(keepJobTTLFields))
	c.narrow = append(c.narrow, jobs)
	controller := ttlafterfinished.New(ctx, jobs.Batch().V1().Jobs(), client)
	c.add(func(ctx context.Context) { controller.Run(ctx, controllerWorkers) })
	return nil
}

// keepJobTTLFields leaves of a Job what decides when it is deleted.
func keepJobTTLFields(obj any) (any, error) {
	job, ok := obj.(*batchv1.Job)
	if !ok {
		return obj, nil
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion, DeletionTimestamp: job.DeletionTimestamp},
		Spec:       batchv1.JobSpec{TTLSecondsAfterFinished: job.Spec.TTLSecondsAfterFinished},
		Status:     batchv1.JobStatus{Conditions: job.Status.Conditions},
	}, nil
}
