package kubernetes

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MakeNamespace makes a namespace with a generated name. Pods can be made in it when ready returns nil.
func MakeNamespace(ctx context.Context, kubeconfig string) (name string, ready func() error, remove func(context.Context) error, err error) {
	a, err := connect(Options{Kubeconfig: kubeconfig})
	if err != nil {
		return "", nil, nil, err
	}
	var made corev1.Namespace
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := a.rest.Post().Resource("namespaces").Body(want).Do(ctx).Into(&made); err != nil {
		return "", nil, nil, err
	}
	ready = func() error {
		return a.rest.Get().Namespace(made.Name).Resource("serviceaccounts").Name("default").Do(ctx).Error()
	}
	remove = func(ctx context.Context) error {
		return a.rest.Delete().Resource("namespaces").Name(made.Name).Do(ctx).Error()
	}
	return made.Name, ready, remove, nil
}

// SetQuota limits the number of Pods in the kubeconfig's namespace.
func SetQuota(ctx context.Context, kubeconfig string, pods int64) error {
	a, err := connect(Options{Kubeconfig: kubeconfig})
	if err != nil {
		return err
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI)}},
	}
	return a.rest.Post().Namespace(a.namespace).Resource("resourcequotas").Body(quota).Do(ctx).Error()
}

// SetPullSecret makes a secret for a registry in the kubeconfig's namespace.
func SetPullSecret(ctx context.Context, kubeconfig, name, registry, user, password string) error {
	a, err := connect(Options{Kubeconfig: kubeconfig})
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"auths": map[string]any{registry: map[string]string{"username": user, "password": password}}})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: text},
	}
	return a.rest.Post().Namespace(a.namespace).Resource("secrets").Body(secret).Do(ctx).Error()
}

// RawPod returns the Pod of a sandbox as JSON.
func RawPod(ctx context.Context, kubeconfig, sandbox string) (string, error) {
	a, err := connect(Options{Kubeconfig: kubeconfig})
	if err != nil {
		return "", err
	}
	pod, err := a.get(ctx, podName(sandbox))
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(pod)
	return string(text), err
}

// DeletePod deletes the Pod of a sandbox.
func DeletePod(ctx context.Context, kubeconfig, sandbox string) error {
	a, err := connect(Options{Kubeconfig: kubeconfig})
	if err != nil {
		return err
	}
	pod, err := a.get(ctx, podName(sandbox))
	if err != nil {
		return err
	}
	return a.deletePod(ctx, pod.Name, pod.UID, atOnce)
}
