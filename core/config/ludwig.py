"""Names of Ludwig configs that core may lack, so that an error can say "not supported" instead of guessing a typo."""

from __future__ import annotations

UNSUPPORTED = "not supported by core"
MODEL_TYPES = ("gbm", "llm")

_FEATURES = (
    "anomaly audio bag binary category category_distribution date h3 image number numerical sequence set text "
    "timeseries vector"
)

# By the key under which `type` is chosen.
TYPES: dict[str, frozenset[str]] = {
    key: frozenset(names.split())
    for key, names in {
        "input_features": _FEATURES,
        "output_features": _FEATURES,
        "combiner": ("comparator concat project_aggregate sequence sequence_concat tabnet tabtransformer transformer"),
        "encoder": (
            "albert auto_transformer bag_embed bert camembert cnnrnn ctrl deberta dense distilbert electra embed "
            "flaubert gpt gpt2 h3_embed longformer mt5 onehot parallel_cnn passthrough periodic ple resnet rnn "
            "roberta sparse stacked_cnn stacked_parallel_cnn stacked_transformer t5 tf_idf transformer "
            "transformer_xl vit wave xlm xlmroberta xlnet"
        ),
        "decoder": "classifier generator mlp_classifier passthrough projector regressor tagger",
        "loss": (
            "anomaly_detection binary_weighted_cross_entropy corn drocc huber mean_absolute_error "
            "mean_absolute_percentage_error mean_squared_error next_token_softmax_cross_entropy "
            "root_mean_squared_error root_mean_squared_percentage_error sequence_softmax_cross_entropy "
            "sigmoid_cross_entropy softmax_cross_entropy"
        ),
        "optimizer": (
            "adadelta adadelta_8bit adagrad adagrad_8bit adam adam_8bit adamax adamw adamw_8bit ftrl lamb lars lbfgs "
            "lion nadam paged_adam paged_adamw rmsprop rmsprop_8bit sgd sgd_8bit"
        ),
        "split": "datetime fixed hash random stratify",
    }.items()
}

# By the last key of the section's path; "" is the config itself.
KEYS: dict[str, frozenset[str]] = {
    section: frozenset(names.split())
    for section, names in {
        "": "adapter base_model generation hyperopt ludwig_version prompt quantization training",
        "trainer": (
            "bucketing_field decay decay_rate decay_steps enable_gradient_checkpointing enable_profiling "
            "eval_steps increase_batch_size_eval_metric increase_batch_size_eval_split "
            "increase_batch_size_on_plateau increase_batch_size_on_plateau_patience "
            "increase_batch_size_on_plateau_rate layers_to_freeze_regex learning_rate_warmup_epochs "
            "max_batch_size profiler reduce_learning_rate_eval_metric reduce_learning_rate_on_plateau "
            "skip_all_evaluation staircase"
        ),
        "preprocessing": (
            "class_weights force_split global_max_sequence_length oversample_minority split_probabilities stratify "
            "undersample_majority"
        ),
        "gradient_clipping": "clipnorm clipvalue",
        "combiner": "bias_initializer fc_layers flatten_inputs weights_initializer",
        "input_features": "active proc_column tied_weights",
        "output_features": (
            "active calibration dependencies num_classes proc_column reduce_dependencies reduce_input top_k"
        ),
        "encoder": (
            "adapter embedding_initializer embeddings_on_cpu embeddings_trainable fc_bias_initializer "
            "fc_layers fc_weights_initializer pretrained_embeddings pretrained_model_name_or_path "
            "saved_weights_in_checkpoint skip trainable use_pretrained weights_initializer bias_initializer"
        ),
        "decoder": (
            "calibration fc_layers fc_bias_initializer fc_weights_initializer weights_initializer bias_initializer"
        ),
        "loss": "class_similarities class_similarities_temperature confidence_penalty robust_lambda",
    }.items()
}

RENAMED = {
    "numerical": "number",
    "training": "trainer",
    "tied_weights": "tied",
    "force_split": "split",
    "split_probabilities": "split.probabilities",
}
