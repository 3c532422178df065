package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fumehood/fumehood"
)

// api is the part of the Kubernetes API that the provider uses: Pods of one namespace.
type api struct {
	config    *rest.Config
	rest      *rest.RESTClient
	namespace string
	params    runtime.ParameterCodec
}

// callWithin bounds a request that is not a stream.
const callWithin = 30 * time.Second

// Requests of this process per second, and how many of them may come at once. An API server limits clients by itself and
// then answers 429, which package rest honors.
const (
	requestsPerSecond = 100
	requestsAtOnce    = 200
)

// connect reads the configuration. It does not contact the cluster.
func connect(opts Options) (*api, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = opts.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: opts.Context})
	config, err := loader.ClientConfig()
	namespace := opts.Namespace
	if err == nil && namespace == "" {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		return nil, &fumehood.Error{
			Op: "make kubernetes provider", Class: fumehood.ErrConfig, Err: err, Hint: "set KUBECONFIG, or run in a Pod with a service account",
		}
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent, config.QPS, config.Burst = "fumehood", requestsPerSecond, requestsAtOnce
	config.WarningHandler = rest.NoWarnings{} // it would write to standard error
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, &fumehood.Error{Op: "make kubernetes provider", Class: fumehood.ErrConfig, Err: err}
	}
	return &api{config, client, cmp.Or(namespace, "default"), runtime.NewParameterCodec(scheme)}, nil
}

// call limits a request.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(silent(ctx), callWithin)
}

// silent keeps the library from logging to standard error, for example that requests wait for requestsPerSecond.
func silent(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

// create creates a Pod.
func (a *api) create(ctx context.Context, pod *corev1.Pod) (made *corev1.Pod, err error) {
	ctx, cancel := call(ctx)
	defer cancel()
	made = &corev1.Pod{}
	err = a.rest.Post().Namespace(a.namespace).Resource("pods").Body(pod).Do(ctx).Into(made)
	return made, explain(err)
}

// get returns a Pod.
func (a *api) get(ctx context.Context, name string) (pod *corev1.Pod, err error) {
	ctx, cancel := call(ctx)
	defer cancel()
	pod = &corev1.Pod{}
	err = a.rest.Get().Namespace(a.namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	return pod, explain(err)
}

// page is how many Pods one answer has.
const page = 500

// list returns the Pods that match selectors of labels and fields, and the version of the list.
func (a *api) list(ctx context.Context, labels, fields string) (all []corev1.Pod, version string, err error) {
	opts := metav1.ListOptions{LabelSelector: labels, FieldSelector: fields, Limit: page}
	for {
		var found corev1.PodList
		within, cancel := call(ctx)
		err = a.rest.Get().Namespace(a.namespace).Resource("pods").VersionedParams(&opts, a.params).Do(within).Into(&found)
		cancel()
		if err != nil {
			return nil, "", explain(err)
		}
		all = append(all, found.Items...)
		if opts.Continue = found.Continue; opts.Continue == "" {
			return all, found.ResourceVersion, nil
		}
	}
}

// watch returns the events of such Pods after a version.
func (a *api) watch(ctx context.Context, labels, fields, version string) (watch.Interface, error) {
	opts := metav1.ListOptions{LabelSelector: labels, FieldSelector: fields, ResourceVersion: version, AllowWatchBookmarks: true, Watch: true}
	return a.rest.Get().Namespace(a.namespace).Resource("pods").VersionedParams(&opts, a.params).Watch(silent(ctx))
}

const (
	// atOnce and graceful are grace periods in seconds: the Pod is gone at once and its processes end soon after that, or they
	// end first.
	atOnce, graceful = 0, 1
	// endsWithin is how long endPod waits for a node, endPause the pause between two looks.
	endsWithin = 30 * time.Second
	endPause   = 200 * time.Millisecond
)

// endPod deletes a Pod like deletePod, and returns when its processes have ended. If the node does not say so in time, it
// deletes the Pod at once.
func (a *api) endPod(ctx context.Context, name string, uid types.UID) error {
	if err := a.deletePod(ctx, name, uid, graceful); err != nil {
		return err
	}
	for until := time.Now().Add(endsWithin); time.Now().Before(until); {
		pod, err := a.get(ctx, name)
		if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
			return nil
		}
		select {
		case <-time.After(endPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return a.deletePod(ctx, name, uid, atOnce)
}

// deletePod deletes a Pod with a grace period, if it is the one with the UID. It returns nil if the Pod is gone.
func (a *api) deletePod(ctx context.Context, name string, uid types.UID, grace int64) error {
	ctx, cancel := call(ctx)
	defer cancel()
	opts := metav1.NewDeleteOptions(grace)
	opts.Preconditions = &metav1.Preconditions{UID: &uid}
	err := a.rest.Delete().Namespace(a.namespace).Resource("pods").Name(name).Body(opts).Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another Pod may have the name
		return nil
	}
	return explain(err)
}

// patch merges a change into a Pod.
func (a *api) patch(ctx context.Context, name string, change any) error {
	ctx, cancel := call(ctx)
	defer cancel()
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return explain(a.rest.Patch(types.MergePatchType).Namespace(a.namespace).Resource("pods").Name(name).Body(body).Do(ctx).Error())
}

// explain gives an error of the API its class.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	e := &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the Kubernetes API: %w", err)}
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		e.Class, e.Hint = fumehood.ErrUnavailable, "check that the cluster answers: kubectl get --raw /readyz"
	case apierrors.IsAlreadyExists(err):
		e.Class, e.Err = fumehood.ErrConfig, errors.New("a sandbox, or another Pod, of that name exists already")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), status.Status().Code == http.StatusUnprocessableEntity:
		e.Class = fumehood.ErrConfig
	case apierrors.IsForbidden(err) && isQuota(status.Status().Message):
		e.Class, e.Hint = fumehood.ErrLimit, "wait until other Pods have ended, or ask for a larger quota of the namespace"
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err) && strings.Contains(status.Status().Message, " cannot "):
		e.Class, e.Hint = fumehood.ErrConfig, "give this account the rights that kubernetes.Rights lists"
	case apierrors.IsForbidden(err): // by an admission plugin: of Pod Security, or for a RuntimeClass that does not exist
		e.Class = fumehood.ErrConfig
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		e.Class = fumehood.ErrUnavailable
	}
	return e
}
