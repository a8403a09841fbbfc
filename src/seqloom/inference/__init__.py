"""What a trained run does for a user: generate, translate, label, fill in masks, embed.

The modules are named by nouns, so that none of them hides a function of the same name.
"""
